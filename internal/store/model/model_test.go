// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

func TestOneObject(t *testing.T) {
	ctx := context.Background()
	s := model.New()
	if err := s.CreateBucket(ctx, object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	i, err := s.Put(ctx, object.Put{Bucket: "b", Key: "k", Size: -1, Body: strings.NewReader("hello")})
	if err != nil || i.ETag != "5d41402abc4b2a76b9719d911017c592" || !i.Latest || i.Version != object.NullVersion {
		t.Fatalf("%+v, %v", i, err)
	}
	c, err := s.Open(ctx, object.Ref{Bucket: "b", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Section(object.Range{Off: 1, N: 3})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "ell" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := s.Stat(ctx, object.Ref{Bucket: "b", Key: "other"}); !errors.Is(err, object.ErrNoSuchKey) {
		t.Fatal(err)
	}
}
