// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestPlacesAreThoseOfTheDescription(t *testing.T) {
	c := newCaller(t, `{"devices":"off"}`, `{"device":"host"}`)
	files, tensors, err := c.Count(c.model)
	c.must(err)
	if files != len(c.desc.Files) || tensors != len(c.desc.Tensors) || tensors == 0 {
		t.Fatalf("%d files and %d tensors; the description has %d and %d", files, tensors, len(c.desc.Files),
			len(c.desc.Tensors))
	}
	f, err := c.File(c.model, 0)
	c.must(err)
	if want := c.desc.Files[0]; f.DestSize != want.DestSize || f.Path != want.Path {
		t.Errorf("file %+v, described %+v", f, want)
	}
	for i, want := range c.desc.Tensors {
		got, err := c.Tensor(c.model, uint64(i))
		c.must(err)
		if got.Name != want.Name || got.Offset != want.Offset || got.Size != want.Size ||
			!slices.Equal(got.Shape, want.Shape) {
			t.Errorf("tensor %d is %+v, described %+v", i, got, want)
		}
		if at, err := c.Find(c.model, want.Name); err != nil || at != i {
			t.Errorf("%s found at %d, %v", want.Name, at, err)
		}
	}
	for what, err := range map[string]error{
		"file":   func() error { _, err := c.File(c.model, uint64(files)); return err }(),
		"tensor": func() error { _, err := c.Tensor(c.model, 1<<63); return err }(),
	} {
		if !errs.Is(err, errs.Invalid) {
			t.Errorf("a %s out of range: %v", what, err)
		}
	}
	if _, err := c.Find(c.model, "nobody"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a name that is not there: %v", err)
	}
	if _, _, err := c.Count(c.system); !errs.Is(err, errs.Closed) {
		t.Errorf("a handle of another kind: %v", err)
	}
}
