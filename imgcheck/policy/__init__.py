"""What a project demands of its images: required hosts and runtimes, waivers, severities, and a baseline."""
