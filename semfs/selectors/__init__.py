"""The selectors: SemFS, SemFSCV, what they explain, and how they are saved."""
