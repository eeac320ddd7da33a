"""Training: plain (for learned priors) and of posteriors, killable and resumable at any moment."""
