// SPDX-License-Identifier: Apache-2.0

// Package synth writes model files with the shapes of real models and reproducible random content. With generated
// files, loads can be measured and verified without downloads.
package synth

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
)

// decoder has the sizes of a published decoder-only transformer.
type decoder struct {
	layers, hidden, heads, kvHeads, headDim, inner, vocab int64
	qkNorm, qkvBias                                       bool
}

// Models returns the names of the models that Shapes can describe.
func Models() []string { return []string{"qwen3-0.6b", "qwen2.5-7b", "tiny"} }

// Shapes returns the tensors of the model with this name, in the order of its layers, with sizes but without offsets.
// The models "qwen3-0.6b" and "qwen2.5-7b" have the names, dtypes and shapes of the published files. The model "tiny"
// has a few dozen small tensors of all dtypes, including scalars and empty tensors. An unknown name is an error of
// kind NotFound.
func Shapes(name string) ([]format.Tensor, error) {
	switch name {
	case "qwen3-0.6b":
		// The published file stores lm_head although it is tied to the embedding.
		return decoder{layers: 28, hidden: 1024, heads: 16, kvHeads: 8, headDim: 128, inner: 3072, vocab: 151936,
			qkNorm: true}.tensors(), nil
	case "qwen2.5-7b":
		return decoder{layers: 28, hidden: 3584, heads: 28, kvHeads: 4, headDim: 128, inner: 18944, vocab: 152064,
			qkvBias: true}.tensors(), nil
	case "tiny":
		return tiny(), nil
	}
	return nil, errs.New(errs.NotFound, "find model shapes", "",
		fmt.Sprintf("the model is %q, expected one of %s", name, strings.Join(Models(), ", ")))
}

// tensors returns the weights under their Hugging Face names.
func (m decoder) tensors() []format.Tensor {
	q, kv := m.heads*m.headDim, m.kvHeads*m.headDim
	ts := []format.Tensor{bf16("model.embed_tokens.weight", m.vocab, m.hidden)}
	for i := range m.layers {
		add := func(name string, shape ...int64) {
			ts = append(ts, bf16(fmt.Sprintf("model.layers.%d.%s", i, name), shape...))
		}
		add("self_attn.q_proj.weight", q, m.hidden)
		add("self_attn.k_proj.weight", kv, m.hidden)
		add("self_attn.v_proj.weight", kv, m.hidden)
		add("self_attn.o_proj.weight", m.hidden, q)
		if m.qkvBias {
			add("self_attn.q_proj.bias", q)
			add("self_attn.k_proj.bias", kv)
			add("self_attn.v_proj.bias", kv)
		}
		if m.qkNorm {
			add("self_attn.q_norm.weight", m.headDim)
			add("self_attn.k_norm.weight", m.headDim)
		}
		add("mlp.gate_proj.weight", m.inner, m.hidden)
		add("mlp.up_proj.weight", m.inner, m.hidden)
		add("mlp.down_proj.weight", m.hidden, m.inner)
		add("input_layernorm.weight", m.hidden)
		add("post_attention_layernorm.weight", m.hidden)
	}
	return append(ts,
		bf16("model.norm.weight", m.hidden),
		bf16("lm_head.weight", m.vocab, m.hidden))
}

func bf16(name string, shape ...int64) format.Tensor { return tensor(name, format.BF16, shape...) }

// tensor returns a tensor with its size. Shapes in this package's tables are known to be whole bytes.
func tensor(name string, d format.DType, shape ...int64) format.Tensor {
	size, err := safetensors.SizeOf(d, shape)
	if err != nil {
		panic("synth: table of shapes: " + err.Error())
	}
	if shape == nil {
		shape = []int64{}
	}
	return format.Tensor{Name: name, DType: d, Shape: shape, Size: size}
}

// tiny covers cases that real models seldom have.
func tiny() []format.Tensor {
	var ts []format.Tensor
	for _, d := range format.DTypes() {
		low := strings.ToLower(string(d))
		// Dimensions are multiples of 4 so that 4 and 6-bit types fill bytes.
		ts = append(ts, tensor(low+".matrix", d, 4, 8), tensor(low+".cube", d, 3, 5, 4))
	}
	for _, d := range []format.DType{format.Bool, format.U8, format.I64, format.F32, format.BF16} {
		ts = append(ts, tensor(strings.ToLower(string(d))+".scalar", d))
	}
	return append(ts,
		tensor("bf16.empty", format.BF16, 0, 16),
		tensor("f32.empty", format.F32, 4, 0, 2),
		tensor("u8.empty", format.U8, 0),
		tensor("u8.odd", format.U8, 13),
		tensor("bf16.odd", format.BF16, 7, 3))
}
