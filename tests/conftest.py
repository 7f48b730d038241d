"""What holds for every test: nothing is fetched from the network, and one core is enough."""

import os

# huggingface_hub reads this when it is imported, so it stands before every import of ours.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
