"""Parts of the training job as a code base would have them; what is wrong in one shows in its traceback."""
