"""The patterns of AArch64's optional instructions against GNU as: what it takes with an extension alone, and without.

What an instruction needs, as tells by a table of its own. Forms of every feature are listed below; beside them a cross
product of mnemonics and operands is given to as, which refuses what does not exist, first without the extension and
then with it.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.words.engine import _patterns
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.cpus import features
from tests.isa.programs import analyse
from tests.isa.test_words import ARM
from tests.tools import compile_c, missing, need, run

_LISTED_FORMS = """
crc32 armv8-a+crc
    crc32b w0, w1, w2; crc32x w0, w1, x2; crc32cw w0, w1, w2
aes armv8-a+crypto
    aese v0.16b, v1.16b; aesd v0.16b, v1.16b; aesmc v0.16b, v1.16b; aesimc v2.16b, v1.16b
pmull armv8-a+crypto
    pmull v0.1q, v1.1d, v2.1d; pmull2 v0.1q, v1.2d, v2.2d
sha1 armv8-a+crypto
    sha1c q0, s1, v2.4s; sha1m q0, s1, v2.4s; sha1h s0, s1; sha1su0 v0.4s, v1.4s, v2.4s; sha1su1 v0.4s, v1.4s
sha2 armv8-a+crypto
    sha256h q0, q1, v2.4s; sha256h2 q0, q1, v2.4s; sha256su0 v0.4s, v1.4s; sha256su1 v0.4s, v1.4s, v2.4s
atomics armv8-a+lse
    casalb w0, w1, [x2]; cas x0, x1, [x2]; caspal x0, x1, x2, x3, [x4]; ldadd w0, w1, [x2]; ldclral x0, x1, [x2];
    ldumaxh w0, w1, [x2]; stset x1, [x2]; swpalb w0, w1, [x2]; swp x0, x1, [sp]
# LDCLRPAL, LDSETPL, SWPPA; as 2.40 does not know them
lse128 armv8-a
    .inst 0x19e11062; .inst 0x19613062; .inst 0x19a18062
lrcpc armv8.3-a
    ldapr x0, [x1]; ldaprb w0, [x1]; ldaprh w0, [x1]
ilrcpc armv8.4-a
    ldapur x0, [x1, 8]; stlurb w0, [x1, -1]; ldapursw x0, [x1]; ldapursh w0, [x1, 2]
# LDIAPP, STILP, LDAPR and STLR that move the base, LDAP1, STL1, LDAPUR and STLUR of vectors
lrcpc3 armv8-a
    .inst 0xd9420861; .inst 0xd9021861; .inst 0xd9c00841; .inst 0x99800841; .inst 0x0d418441; .inst 0x4d018441;
    .inst 0xdd408841; .inst 0x1d000841
asimdrdm armv8.1-a
    sqrdmlah v0.4s, v1.4s, v2.4s; sqrdmlsh v0.8h, v1.8h, v2.h[7]; sqrdmlah s0, s1, s2; sqrdmlsh h0, h1, h2;
    sqrdmlah h0, h1, v2.h[3]; sqrdmlsh s0, s1, v2.s[1]
asimddp armv8.2-a+dotprod
    sdot v0.4s, v1.16b, v2.16b; udot v0.2s, v1.8b, v2.8b; sdot v0.4s, v1.16b, v2.4b[3]; udot v0.2s, v1.8b, v2.4b[0]
fcma armv8.3-a
    fcmla v0.4s, v1.4s, v2.4s, 90; fcadd v0.2d, v1.2d, v2.2d, 270; fcmla v0.4s, v1.4s, v2.s[1], 0;
    fcmla v0.4s, v1.4s, v17.s[0], 270
asimdfhm armv8.2-a+fp16fml
    fmlal v0.4s, v1.4h, v2.4h; fmlsl v0.2s, v1.2h, v2.2h; fmlal2 v0.4s, v1.4h, v2.4h; fmlsl2 v0.4s, v1.4h, v2.4h;
    fmlal v0.4s, v1.4h, v2.h[7]; fmlsl v0.2s, v1.2h, v2.h[0]; fmlal2 v0.4s, v1.4h, v2.h[1];
    fmlsl2 v0.4s, v1.4h, v15.h[4]
i8mm armv8.2-a+i8mm
    smmla v0.4s, v1.16b, v2.16b; ummla v0.4s, v1.16b, v2.16b; usmmla v0.4s, v1.16b, v2.16b;
    usdot v0.4s, v1.16b, v2.16b; usdot v0.2s, v1.8b, v2.4b[1]; sudot v0.4s, v1.16b, v2.4b[3]
bf16 armv8.2-a+bf16
    bfdot v0.4s, v1.8h, v2.8h; bfdot v0.2s, v1.4h, v2.2h[3]; bfmmla v0.4s, v1.8h, v2.8h; bfmlalb v0.4s, v1.8h, v2.8h;
    bfmlalt v0.4s, v1.8h, v2.h[7]; bfmlalb v0.4s, v1.8h, v2.h[0]; bfcvt h0, s1; bfcvtn v0.4h, v1.4s;
    bfcvtn2 v0.8h, v1.4s
fphp armv8.2-a+fp16
    fadd h0, h1, h2; fmadd h0, h1, h2, h3; fcvtzs w0, h1; fcvtzu x0, h1; scvtf h0, w1; ucvtf h0, x1, 3;
    fcvtzs x0, h1, 7; fmov h0, 1.0; fmov h0, w1; fmov x0, h1; fcmp h0, 0.0; fccmp h0, h1, 0, eq; fcsel h0, h1, h2, ne;
    frintx h0, h1; fsqrt h0, h1
asimdhp armv8.2-a+fp16
    fadd v0.8h, v1.8h, v2.8h; fmla v0.4h, v1.4h, v2.4h; fabs v0.8h, v1.8h; fcmeq v0.8h, v1.8h, 0.0;
    scvtf v0.8h, v1.8h; fmla v0.8h, v1.8h, v2.h[7]; fmls v0.4h, v1.4h, v2.h[0]; fmul v0.8h, v1.8h, v2.h[1];
    fmulx v0.8h, v1.8h, v2.h[2]; fmla h0, h1, v2.h[5]; fmul h0, h1, v2.h[6]; fmulx h0, h1, v2.h[3]; fmov v0.8h, 1.0;
    fmov v0.4h, -2.0; fmaxv h0, v1.8h; fminv h0, v1.4h; fmaxnmv h0, v1.8h; fminnmv h0, v1.8h; faddp h0, v1.2h;
    fmaxp h0, v1.2h; fminnmp h0, v1.2h; fabd h0, h1, h2; fcmgt h0, h1, h2; fcmeq h0, h1, 0.0; facge h0, h1, h2;
    frecps h0, h1, h2; frsqrte h0, h1; scvtf h0, h1; ucvtf h0, h1, 3; fcvtzs h0, h1, 16; scvtf v0.8h, v1.8h, 1;
    ucvtf v0.4h, v1.4h, 16; fcvtzu v0.8h, v1.8h, 5; faddp v0.8h, v1.8h, v2.8h
frint armv8.5-a
    frint32z s0, s1; frint32x d0, d1; frint64z d0, d1; frint64x s0, s1; frint32z v0.4s, v1.4s; frint64x v0.2d, v1.2d;
    frint32x v0.2s, v1.2s; frint64z v0.4s, v1.4s
jscvt armv8.3-a
    fjcvtzs w0, d1
sha3 armv8.2-a+sha3
    eor3 v0.16b, v1.16b, v2.16b, v3.16b; bcax v0.16b, v1.16b, v2.16b, v3.16b; rax1 v0.2d, v1.2d, v2.2d;
    xar v0.2d, v1.2d, v2.2d, 7
sha512 armv8.2-a+sha3
    sha512h q0, q1, v2.2d; sha512h2 q0, q1, v2.2d; sha512su0 v0.2d, v1.2d; sha512su1 v0.2d, v1.2d, v2.2d
sm3 armv8.2-a+sm4
    sm3ss1 v0.4s, v1.4s, v2.4s, v3.4s; sm3tt1a v0.4s, v1.4s, v2.s[1]; sm3tt2b v0.4s, v1.4s, v2.s[3];
    sm3partw1 v0.4s, v1.4s, v2.4s; sm3partw2 v0.4s, v1.4s, v2.4s
sm4 armv8.2-a+sm4
    sm4e v0.4s, v1.4s; sm4ekey v0.4s, v1.4s, v2.4s
paca armv8.3-a
    pacia x0, x1; pacdb x0, sp; autia x0, x1; autdb x0, x1; paciza x0; autdzb x0; xpaci x0; xpacd x0;
    ldraa x0, [x1, 8]; ldrab x0, [x1, -8]!; blraa x0, x1; blrab x0, sp; blraaz x0; braa x0, x1; brabz x0; retaa; retab
pacg armv8.3-a
    pacga x0, x1, x2; pacga x0, x1, sp
flagm armv8.4-a
    cfinv; rmif x0, 3, 15; setf8 w0; setf16 w1
flagm2 armv8.5-a
    axflag; xaflag
sb armv8.5-a
    sb
wfxt armv8.7-a
    wfet x0; wfit x1
dcpop armv8.2-a
    dc cvap, x0; dc cvap, x30
dcpodp armv8.5-a
    dc cvadp, x0
dit armv8.4-a
    msr dit, 1; msr dit, 0; msr dit, x0; mrs x0, dit
ssbs armv8.5-a
    msr ssbs, 1; msr ssbs, 0; msr ssbs, x0; mrs x0, ssbs
rng armv8.5-a+rng
    mrs x0, rndr; mrs x30, rndrrs
mops armv8.8-a
    cpyfp [x0]!, [x1]!, x2!; cpyfm [x0]!, [x1]!, x2!; cpyfe [x0]!, [x1]!, x2!; cpyprtwn [x0]!, [x1]!, x2!;
    cpymrtwn [x0]!, [x1]!, x2!; cpyertwn [x0]!, [x1]!, x2!; setp [x0]!, x1!, x2; setm [x0]!, x1!, x2;
    sete [x0]!, x1!, x2
cssc armv8-a+cssc
    abs x0, x1; cnt w0, w1; ctz x0, x1; smax w0, w1, w2; umin x0, x1, x2; smin x0, x1, -5; umax w0, w1, 200
hbc armv8.8-a
    1: bc.eq 1b; bc.lt 1b
sve armv8.2-a+sve
    ptrue p0.b; ld1w {z0.s}, p0/z, [x0]; fmla z0.s, p0/m, z1.s, z2.s; whilelo p0.s, x0, x1; incw x0;
    add z0.b, z1.b, z2.b; st1d {z0.d}, p0, [x0, x1, lsl 3]; sdot z0.s, z1.b, z2.b; udot z0.d, z1.h, z2.h[1];
    rdvl x0, 1; tbl z0.b, {z1.b}, z2.b; ld1b {z0.s}, p0/z, [z1.s]
sve2 armv8.5-a+sve2
    smlalb z0.s, z1.h, z2.h; eor3 z0.d, z0.d, z1.d, z2.d; nbsl z0.d, z0.d, z1.d, z2.d; xar z0.s, z0.s, z1.s, 3;
    mul z0.s, z1.s, z2.s; umulh z0.d, z1.d, z2.d; pmul z0.b, z1.b, z2.b; sqrdmulh z0.h, z1.h, z2.h;
    sqshl z0.b, p0/m, z0.b, 3; urshr z0.h, p0/m, z0.h, 2; sqshlu z0.s, p0/m, z0.s, 4; ext z0.b, {z1.b, z2.b}, 3;
    splice z0.b, p0, {z1.b, z2.b}; tbl z0.b, {z1.b, z2.b}, z3.b; tbx z0.b, z1.b, z2.b; whilege p0.b, x0, x1;
    whilehi p0.s, w0, w1; whilerw p0.b, x0, x1; whilewr p0.d, x0, x1; faddp z0.s, p0/m, z0.s, z1.s;
    fcvtlt z0.s, p0/m, z1.h; fcvtnt z0.h, p0/m, z1.s; fcvtx z0.s, p0/m, z1.d; fcvtxnt z0.s, p0/m, z1.d;
    flogb z0.s, p0/m, z1.s; fmlalb z0.s, z1.h, z2.h; fmlslt z0.s, z1.h, z2.h[3]; ldnt1b {z0.s}, p0/z, [z1.s, x0];
    ldnt1sw {z0.d}, p0/z, [z1.d, x0]; stnt1h {z0.d}, p0, [z1.d, x0]; stnt1w {z0.s}, p0, [z1.s];
    histcnt z0.s, p0/z, z1.s, z2.s; match p0.b, p0/z, z1.b, z2.b; sqrdmlah z0.s, z1.s, z2.s; cdot z0.s, z1.b, z2.b, 90
svef32mm armv8.2-a+sve+f32mm
    fmmla z0.s, z1.s, z2.s; fmmla z3.s, z1.s, z2.s
svef64mm armv8.2-a+sve+f64mm
    fmmla z0.d, z1.d, z2.d; ld1rob {z0.b}, p0/z, [x0, x1]; ld1rod {z0.d}, p0/z, [x0, 32]; zip1 z0.q, z1.q, z2.q;
    trn2 z0.q, z1.q, z2.q; uzp1 z0.q, z1.q, z2.q
sveaes armv8.5-a+sve2-aes
    aese z0.b, z0.b, z1.b; aesd z0.b, z0.b, z1.b; aesmc z0.b, z0.b; aesimc z0.b, z0.b
svepmull armv8.5-a+sve2-aes
    pmullb z0.q, z1.d, z2.d; pmullt z0.q, z1.d, z2.d
svebitperm armv8.5-a+sve2-bitperm
    bext z0.b, z1.b, z2.b; bdep z0.d, z1.d, z2.d; bgrp z0.s, z1.s, z2.s
svesha3 armv8.5-a+sve2-sha3
    rax1 z0.d, z1.d, z2.d; rax1 z3.d, z1.d, z2.d
svesm4 armv8.5-a+sve2-sm4
    sm4e z0.s, z0.s, z1.s; sm4ekey z0.s, z1.s, z2.s
sme armv8.6-a+sme-i64+sme-f64
    smstart; smstop; smstart sm; smstop za; addsvl x0, x1, 3; addspl x0, x1, 3; rdsvl x0, 1; zero {za};
    mova za0h.b[w12, 3], p0/m, z1.b; mova z0.q, p0/m, za3v.q[w12, 0]; addha za0.s, p0/m, p1/m, z0.s;
    addva za0.d, p0/m, p1/m, z0.d; ld1b {za0h.b[w12, 0]}, p0/z, [x0]; st1q {za0v.q[w12, 0]}, p0, [x0];
    ldr za[w12, 0], [x0]; str za[w12, 5], [x0, 5, mul vl]; fmopa za0.s, p0/m, p1/m, z0.s, z1.s;
    fmops za0.d, p0/m, p1/m, z0.d, z1.d; bfmopa za0.s, p0/m, p1/m, z0.h, z1.h; fmopa za0.s, p0/m, p1/m, z0.h, z1.h;
    smopa za0.s, p0/m, p1/m, z0.b, z1.b; umops za0.d, p0/m, p1/m, z0.h, z1.h; usmopa za0.s, p0/m, p1/m, z0.b, z1.b
"""
"""Lines with a feature and what as is told to assemble for; below each, what needs this feature and nothing else."""


def _forms() -> Iterator[tuple[str, str, list[str]]]:
    """Feature, what as assembles for, instructions."""
    plain = re.sub(r"^#.*\n", "", _LISTED_FORMS.lstrip(), flags=re.MULTILINE)
    for feature, arch, forms in re.findall(r"^(\w+) (\S+)\n((?: .*\n)+)", plain, re.MULTILINE):
        yield feature, arch, [form.strip() for form in re.split(r"[;\n]", forms) if form.strip()]


FORMS = {feature: (arch, forms) for feature, arch, forms in _forms()}
BESIDE = {
    **{feature: {"sve"} for feature in ("sve2", "svef32mm", "svef64mm")},
    **{feature: {"sve2"} for feature in ("sveaes", "svepmull", "svebitperm", "svesha3", "svesm4")},
}
"""What a feature builds on, and what is told beside it."""


@pytest.mark.parametrize("feature", FORMS)
def test_all_forms_of_a_feature_are_told(feature: str) -> None:
    arch, forms = FORMS[feature]
    count = len(forms)
    source = f".arch {arch}\n.globl f\n.type f,@function\nf: {'; '.join(forms)}\n ret\n.size f,.-f\n"
    library = compile_c(source, "-shared", "-nostdlib", out="lib.so", compiler=ARM, language="assembler")
    found = {use.feature: use.count for use in analyse(library).uses}
    assert found.pop(feature) == count
    assert found.keys() <= BESIDE.get(feature, set())


SVE_FORMS = {
    "i8mm": "usdot z0.s, z1.b, z2.b; usdot z0.s, z1.b, z2.b[1]; sudot z0.s, z1.b, z2.b[3]; smmla z0.s, z1.b, z2.b;"
            "ummla z0.s, z1.b, z2.b; usmmla z0.s, z1.b, z2.b",
    "bf16": "bfdot z0.s, z1.h, z2.h; bfdot z0.s, z1.h, z2.h[1]; bfmmla z0.s, z1.h, z2.h; bfmlalb z0.s, z1.h, z2.h;"
            "bfmlalt z0.s, z1.h, z2.h[5]; bfcvt z0.h, p0/m, z1.s; bfcvtnt z0.h, p0/m, z1.s",
}  # fmt: skip


@pytest.mark.parametrize("feature", SVE_FORMS)
def test_forms_of_sve_need_no_sve2(feature: str) -> None:
    for form in SVE_FORMS[feature].split(";"):
        (word,) = _assembled(f"armv8.2-a+sve+{feature}", [form]).values()
        assert _features(word) == {feature, "sve"}, form


def test_every_feature_has_forms_bits_and_a_name() -> None:
    patterned = {pattern["feature"] for pattern in _patterns("aarch64")["patterns"]}
    assert patterned == FORMS.keys()
    assert set(_patterns("aarch64")["dense"]) <= patterned
    told = {name for place in analysis()["aarch64"]["bits"].values() for name in place.values()}
    assert patterned <= told
    assert patterned <= features(Knowledge(), "aarch64").keys()


def _features(word: int) -> set[str]:
    patterns = _patterns("aarch64")["patterns"]
    return {
        pattern["feature"]
        for pattern in patterns
        if word & pattern["mask"] == pattern["value"]
        and all(word & mask != value for mask, value in pattern.get("except", ()))
    }


def _assembled(arch: str, lines: Iterable[str]) -> dict[str, int]:
    """Each line that as takes for `arch` -> its word."""
    kept = list(dict.fromkeys(lines))
    while True:
        source = "\n".join([f".arch {arch}", *kept, ""])
        command = [need("aarch64-linux-gnu-as"), "-aln", "-o", "/dev/null", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
        refused = {int(number) - 2 for number in re.findall(r":(\d+): Error", done.stderr)}
        if not refused:
            break
        kept = [line for number, line in enumerate(kept) if number not in refused]
    listed = re.findall(r"^ *(\d+) [0-9a-f]{4,} ([0-9A-F]{8}) ", done.stdout, re.MULTILINE)
    assert len(listed) == len(kept)
    return {kept[int(number) - 2]: int.from_bytes(bytes.fromhex(word), "little") for number, word in listed}


_SHAPES = [f".{count}{size}" for size, counts in (("b", (8, 16)), ("h", (4, 8)), ("s", (2, 4)), ("d", (1, 2)))
           for count in counts]  # fmt: skip
_OPERANDS = [
    *(f"v1{a}, v2{a}{last}" for a in _SHAPES for last in ("", ", #0", ", #0.0", ", #3", ", v3" + a)),
    *(f"v1{a}, v2{a}, v3.{size}[1]" for a in _SHAPES for size in "hsd"),
    *(f"v1{a}, v2{b}" for a in _SHAPES for b in _SHAPES),
    *(f"v1{a}, v2{b}, v3{b}" for a in _SHAPES for b in _SHAPES),
    *(f"v1{a}, v2{b}, v3.{last}[1]" for a in (".2s", ".4s") for b in (".8b", ".16b", ".4h", ".8h", ".2h")
      for last in ("4b", "2h", "h")),
    *(f"{r}1, {r}2{last}" for r in "bhsd" for last in ("", ", #0", ", #0.0", ", #3", f", {r}3", f", {r}3, {r}4",
                                                      ", v3.h[1]", ", v3.s[1]", ", v3.d[1]")),
    *(f"{a}1, {b}2" for a in "bhsdwx" for b in "bhsdwx"),
    *(f"{a}1, {b}2, #3" for a in "hsdwx" for b in "hsdwx"),
    *(f"{r}1, v2{a}" for r in "bhsd" for a in [*_SHAPES, ".2h"]),
    *(f"v1{a}, #1.0" for a in _SHAPES),
    *(f"{r}1, #1.0" for r in "hsd"),
    *(f"v1{a}, v2{a}, v3{a}, #90" for a in _SHAPES),
    *("v1.4s, v2.4s, v3.s[1], #90", "v1.8h, v2.8h, v3.h[1], #90", "v1.4h, v2.4h, v3.h[0], #180"),
]  # fmt: skip
_LISTED_MNEMONICS = """
abs add addhn addhn2 addp addv and bfcvt bfcvtn bfcvtn2 bfdot bfmlalb bfmlalt bfmmla bic bif bit bsl cls clz cmeq cmge
cmgt cmhi cmhs cmle cmlt cmtst cnt dup eor fabd fabs facge facgt fadd faddp fcadd fccmp fcmeq fcmge fcmgt fcmla fcmle
fcmlt fcmp fcmpe fcvt fcvtas fcvtau fcvtl fcvtl2 fcvtms fcvtmu fcvtn fcvtn2 fcvtns fcvtnu fcvtps fcvtpu fcvtxn fcvtxn2
fcvtzs fcvtzu fdiv fjcvtzs fmadd fmax fmaxnm fmaxnmp fmaxnmv fmaxp fmaxv fmin fminnm fminnmp fminnmv fminp fminv fmla
fmlal fmlal2 fmls fmlsl fmlsl2 fmov fmsub fmul fmulx fneg fnmadd fnmsub fnmul frecpe frecps frecpx frint32x frint32z
frint64x frint64z frinta frinti frintm frintn frintp frintx frintz frsqrte frsqrts fsqrt fsub mla mls mov mul mvn neg
not orn orr pmul pmull pmull2 raddhn rbit rev rev16 rev32 rev64 rshrn rsubhn saba sabal sabd sabdl sadalp saddl saddlp
saddlv saddw scvtf sdot shadd shl shll shrn shsub sli smax smaxp smaxv smin sminp sminv smlal smlal2 smlsl smmla smov
smull smull2 sqabs sqadd sqdmlal sqdmlal2 sqdmlsl sqdmulh sqdmull sqneg sqrdmlah sqrdmlsh sqrdmulh sqrshl sqrshrn
sqrshrun sqshl sqshlu sqshrn sqshrun sqsub sqxtn sqxtun srhadd sri srshl srshr srsra sshl sshll sshr ssra ssubl ssubw
sub subhn sudot suqadd sxtl tbl tbx trn1 trn2 uaba uabal uabd uabdl uadalp uaddl uaddlp uaddlv uaddw ucvtf udot uhadd
uhsub umax umaxp umaxv umin uminp uminv umlal umlsl ummla umov umull uqadd uqrshl uqrshrn uqshl uqshrn uqsub uqxtn
urecpe urhadd urshl urshr ursqrte ursra usdot ushl ushll ushr usmmla usqadd usra usubl usubw uxtl uzp1 uzp2 xtn xtn2
zip1 zip2
"""
_CROSS = [f"{name} {operands}" for name in _LISTED_MNEMONICS.split() for operands in _OPERANDS]


@pytest.fixture(scope="module")
def plain() -> dict[str, int]:
    """What as takes for Armv8.0, of the cross product."""
    return _assembled("armv8-a", _CROSS)


def test_vector_and_scalar_instructions_of_armv8_0_need_nothing(plain: dict[str, int]) -> None:
    assert {"fcvt h1, s2", "fcvt d1, h2", "fcvtl v1.4s, v2.4h", "scvtf d1, x2, #3", "pmull v1.8h, v2.8b, v3.8b"} <= set(
        plain
    )
    assert {line: _features(word) for line, word in plain.items() if _features(word)} == {}
    assert len(plain) > 1300


@pytest.mark.parametrize(
    ("arch", "expected", "least"),
    [
        ("armv8-a+fp16", {"fphp", "asimdhp"}, 250),
        ("armv8-a+rdma", {"asimdrdm"}, 10),
        ("armv8.2-a+dotprod", {"asimddp", "asimdrdm"}, 15),
        ("armv8-a+compnum", {"fcma", "fphp", "asimdhp"}, 250),
        ("armv8.2-a+i8mm", {"i8mm", "asimdrdm"}, 15),
        ("armv8-a+bf16", {"bf16"}, 8),
        ("armv8.2-a+fp16fml", {"asimdfhm", "fphp", "asimdhp", "asimdrdm"}, 250),
        ("armv8.5-a", {"frint", "jscvt", "fcma", "asimdrdm", "asimddp"}, 30),
    ],
)
def test_what_an_extension_adds_needs_it(plain: dict[str, int], arch: str, expected: set[str], least: int) -> None:
    known = set(plain.values())  # also by another name, as REV64 of a register is REV
    added = {line: word for line, word in _assembled(arch, _CROSS).items() if word not in known}
    assert len(added) >= least
    wrong = {line: _features(word) for line, word in added.items() if not _features(word) or _features(word) - expected}
    assert wrong == {}
    assert {feature for word in added.values() for feature in _features(word)} == expected


OUTLINED = re.compile(r"cas|ld(add|clr|eor|set|[su]max|[su]min)|st(add|clr|eor|set|[su]max|[su]min)|swp")
"""What libgcc's outlined atomics use on CPUs that have it."""


@pytest.mark.parametrize("name", ["libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libresolv.so.2"])
def test_libraries_for_armv8_0_hold_nothing_else(name: str) -> None:
    library = Path("/usr/aarch64-linux-gnu/lib", name)
    if not library.exists():
        need(ARM)
        missing(f"needs {library}")
    listing = run(need("aarch64-linux-gnu-objdump"), "-d", library).stdout
    shown = {
        (int(word, 16), name) for word, name in re.findall(r"^ +\w+:\t([0-9a-f]{8}) \t([\w.]+)", listing, re.MULTILINE)
    }
    needing = {(name, *_features(word)) for word, name in shown if name not in (".inst", "udf") and _features(word)}
    assert len(shown) > 1000
    assert all(OUTLINED.match(name) and found == ["atomics"] for name, *found in needing), needing
