"""The open benchmark of whole logs of real jobs: labels, where the logs are, and how any tool is scored on them."""
