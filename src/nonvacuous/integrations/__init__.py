"""Where people are: thin layers over evaluate for scikit-learn, Lightning and Hugging Face."""
