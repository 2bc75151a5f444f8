"""Pages: their structure, what they escape, and that they need nothing else."""
