# SPDX-License-Identifier: Apache-2.0
"""transformers' generation."""
import torch

import tiny

model = tiny.model().to("cuda").eval()
ids = torch.randint(3, 60, (4, 64)).to("cuda")
with torch.inference_mode():
    out = model.generate(ids, max_new_tokens=32, do_sample=True, pad_token_id=0)
print("made", tuple(out.shape))
