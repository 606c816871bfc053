"""Writes a language model of random weights for transformers, small enough to be made and loaded in a moment.

Its words are nonsense. Its template fails for a message whose content is missing or null, as those of well-known models do.
"""

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 4096
SPECIAL = ["<s>", "</s>"]
TEMPLATE = (
    "{% for message in messages %}{{ '[' + message['role'] + ']' + message['content'] }}"
    "{% if message['tool_calls'] %}{{ message['tool_calls'] | tojson }}{% endif %}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def write(path):
    bytes_of_text = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: number for number, text in enumerate(SPECIAL + bytes_of_text)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(path)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(path)


if __name__ == "__main__":
    write(sys.argv[1])
