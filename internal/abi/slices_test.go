// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// parts is what describe says of a slice.
type parts struct {
	Tensors []struct {
		Name   string  `json:"name"`
		Shape  []int64 `json:"shape"`
		Whole  []int64 `json:"whole_shape"`
		Start  []int64 `json:"start"`
		Offset int64   `json:"offset"`
		Size   int64   `json:"size"`
	} `json:"tensors"`
}

func TestSlicesAndShardsOfAModel(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, `{"device":"host","tensors":["u8.matrix","large","u8.odd"],
		"slices":[{"tensor":"u8.m*","ranges":[null,[2,-1]]}],"shards":[{"tensor":"large","dim":0,"rank":1,"world":4}]}`)
	text, err := c.Describe(c.model)
	c.must(err)
	var p parts
	c.must(json.Unmarshal(text, &p))
	load, err := c.StartLoad(c.model, c.dst(), 0, "")
	c.must(err)
	if _, _, _, err := c.Wait(load, -time.Second); err != nil {
		t.Fatal(err)
	}
	all := newCaller(t, `{"devices":"off"}`, `{"device":"host"}`)
	whole, err := all.StartLoad(all.model, all.dst(), 0, "")
	c.must(err)
	if _, _, _, err := all.Wait(whole, -time.Second); err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{}
	for _, x := range all.desc.Tensors {
		data[x.Name] = all.mem[x.Offset : x.Offset+x.Size]
	}
	seen := 0
	for _, x := range p.Tensors {
		var want []byte
		switch x.Name {
		case "u8.matrix":
			for i := range 4 {
				want = append(want, data[x.Name][8*i+2:8*i+8]...)
			}
			if len(x.Start) != 2 || x.Start[1] != 2 || x.Whole[1] != 8 || x.Shape[1] != 6 {
				t.Errorf("%+v", x)
			}
		case "large":
			want = data[x.Name][1<<20 : 2<<20]
			if x.Start[0] != 1<<20 || x.Whole[0] != 4<<20 || x.Shape[0] != 1<<20 {
				t.Errorf("%+v", x)
			}
		case "u8.odd":
			want = data[x.Name]
			if x.Whole != nil || x.Start != nil {
				t.Errorf("a whole tensor: %+v", x)
			}
		}
		if !bytes.Equal(c.mem[x.Offset:x.Offset+x.Size], want) {
			t.Errorf("%s differs", x.Name)
		}
		seen++
	}
	if seen != 3 {
		t.Errorf("%d tensors", seen)
	}
	for _, h := range []uint64{load, c.model, c.system} {
		c.must(c.Release(h))
	}
	for _, h := range []uint64{whole, all.model, all.system} {
		c.must(all.Release(h))
	}
}

func TestSliceOptionsAreStrict(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, `{"device":"host"}`)
	path := c.desc.Files[0].Path
	for options, want := range map[string]string{
		`{"slices":[{"ranges":[[0,1]]}]}`: `slices[0]: has no "tensor"`,
		`{"slices":[{"tensor":"large"},{"tensor":"a","ranges":[[]]}]}`: "slices[1]: range 0 has 0 numbers; expected " +
			"[start, stop] or null",
		`{"slices":[{"tensor":"large","ranges":[[1,2,3]]}]}`:         "range 0 has 3 numbers",
		`{"slices":[{"tensor":"large","ranges":[[0,1.5]]}]}`:         "read options",
		`{"slices":[{"tensor":"large","step":2}]}`:                   `"step"`,
		`{"slices":[{"tensor":"large","ranges":[[0,5000000]]}]}`:     "takes [0, 5000000) of dimension 0, which has 4194304",
		`{"shards":[{"tensor":"large","rank":0,"world":2}]}`:         `shards[0]: is not whole; expected "tensor", "dim", "rank" and "world"`,
		`{"shards":[{"tensor":"large","dim":0,"rank":2,"world":2}]}`: "is not possible",
	} {
		if _, err := c.OpenModel(c.system, path, options); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", options, err)
		}
	}
	for _, h := range []uint64{c.model, c.system} {
		c.must(c.Release(h))
	}
}
