"""Writes a language model of random weights, small enough to be made and loaded in a moment.

Its words are nonsense, but the server's grammars make valid calls of them. The output layer prefers three characters over
all others, in this order: `<`, `f`, and last of all `m`. Where a grammar lets the model choose between a call
(`functions.…`), a message (`message:`) and the end (`<|im_end|>`), it makes exactly one call.
"""

import sys

import gguf
import numpy as np

WIDTH, HEADS, INNER, CONTEXT = 32, 4, 64, 8192
SPECIAL = ["<unk>", "<s>", "</s>"]
PRINTABLE = [chr(code) for code in range(0x21, 0x7F)]
# As the templates of well-known models, it fails for a message whose content is missing or null.
TEMPLATE = (
    "{% for message in messages %}{{ '[' + message.role + ']' + message.content }}"
    "{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}{% endfor %}[assistant]"
)


def tokens():
    """Text, score and type of every token: the specials, a token per byte, one per printable character, a space."""
    kind = gguf.TokenType
    yield from zip(SPECIAL, [0.0] * 3, [kind.UNKNOWN, kind.CONTROL, kind.CONTROL])
    for byte in range(256):
        yield f"<0x{byte:02X}>", 0.0, kind.BYTE
    for char in ["\u2581", *PRINTABLE]:
        yield char, 0.0, kind.NORMAL


def write(path):
    vocabulary = list(tokens())
    texts = [text for text, _, _ in vocabulary]
    random = np.random.default_rng(7)

    def matrix(rows, columns):
        return random.normal(0.0, 0.1, (rows, columns)).astype(np.float32)

    # The first number of every hidden state is large, so that a row of the output layer prefers its token by that.
    embedding, output = matrix(len(texts), WIDTH), matrix(len(texts), WIDTH)
    embedding[:, 0] = 2.0
    output[:, 0] = 0.0
    for text, preference in (("<", 4.0), ("f", 2.0), ("m", -4.0), ("</s>", -4.0)):
        output[texts.index(text), 0] = preference

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(texts))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores([score for _, score, _ in vocabulary])
    writer.add_token_types([kind for _, _, kind in vocabulary])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    ones = np.ones(WIDTH, dtype=np.float32)
    for name, tensor in {
        "token_embd.weight": embedding,
        "blk.0.attn_norm.weight": ones,
        "blk.0.attn_q.weight": matrix(WIDTH, WIDTH),
        "blk.0.attn_k.weight": matrix(WIDTH, WIDTH),
        "blk.0.attn_v.weight": matrix(WIDTH, WIDTH),
        "blk.0.attn_output.weight": matrix(WIDTH, WIDTH),
        "blk.0.ffn_norm.weight": ones,
        "blk.0.ffn_gate.weight": matrix(INNER, WIDTH),
        "blk.0.ffn_up.weight": matrix(INNER, WIDTH),
        "blk.0.ffn_down.weight": matrix(WIDTH, INNER),
        "output_norm.weight": ones,
        "output.weight": output,
    }.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(sys.argv[1])
