// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

func TestKeysOfAnUpstream(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[far]\naws_access_key_id = AK\naws_secret_access_key = SK\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_UPSTREAM_KEY", "key")
	t.Setenv("TEST_UPSTREAM_SECRET", "do-not-show")
	t.Setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of-the-environment")
	for _, x := range []struct {
		u    config.Upstream
		key  string
		fail string
	}{
		{u: config.Upstream{}},
		{u: config.Upstream{AccessKeyEnv: "TEST_UPSTREAM_KEY", SecretKeyEnv: "TEST_UPSTREAM_SECRET"}, key: "key"},
		{u: config.Upstream{AccessKeyEnv: "TEST_UPSTREAM_KEY", SecretKeyEnv: "TEST_UPSTREAM_NONE"},
			fail: "TEST_UPSTREAM_NONE"},
		{u: config.Upstream{CredentialsFile: file, Profile: "far"}, key: "AK"},
		{u: config.Upstream{CredentialsFile: file, Profile: "near"}, fail: "near"},
	} {
		x.u.Endpoint = "http://127.0.0.1:1"
		p, err := upstreamCredentials(t.Context(), "models", &x.u)
		if x.fail != "" {
			if err == nil || !strings.Contains(err.Error(), x.fail) || strings.Contains(err.Error(), "do-not-show") {
				t.Errorf("%+v: %v", x.u, err)
			}
			continue
		}
		if err != nil || (p == nil) != (x.key == "") {
			t.Errorf("%+v: %v", x.u, err)
			continue
		}
		if p == nil {
			continue
		}
		if c, err := p(t.Context()); err != nil || c.AccessKey != x.key {
			t.Errorf("%+v: %v, %v", x.u, c, err)
		}
	}
}

// TestABucketThatLeavesTheConfiguration: objects of an upstream bucket cannot be mistaken for absent when its entry is
// gone, and an upstream bucket never hides objects of a local one.
func TestABucketThatLeavesTheConfiguration(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	c := settings(t, map[string]string{"data": dir})
	open := func() (store, error) {
		local, err := openStore(t.Context(), c, events{})
		if err != nil {
			t.Fatal(err)
		}
		encrypted, err := addEncryption(t.Context(), c, local, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		st, err := addUpstreams(t.Context(), c, encrypted, slog.New(slog.DiscardHandler))
		if err != nil {
			_ = local.Close()
		}
		return st, err
	}
	entry := map[string]*config.Upstream{"models": {Endpoint: "http://127.0.0.1:1", Region: "us-east-1",
		Validate: "always"}}
	c.Upstream = entry
	st, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := st.Bucket(t.Context(), "models"); err != nil || b.Owner == "" {
		t.Errorf("%+v, %v", b, err)
	}
	if err := st.DeleteBucket(t.Context(), "models"); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	c.Upstream = nil
	if st, err = open(); err != nil {
		t.Fatal(err)
	}
	ref := object.Ref{Bucket: "models", Key: "a"}
	if _, err := st.Stat(t.Context(), ref); err == nil || errs.Is(err, errs.NotFound) {
		t.Errorf("an object of a bucket without its upstream: %v", err)
	}
	put := object.Put{Bucket: "models", Key: "a", Size: 1, Body: strings.NewReader("1")}
	if _, err := st.Put(t.Context(), put); err == nil {
		t.Error("an object was written to a bucket without its upstream")
	}
	if err := st.DeleteBucket(t.Context(), "models"); err != nil {
		t.Error(err)
	}
	if err := st.CreateBucket(t.Context(), object.Bucket{Name: "models"}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err = open(); err != nil {
		t.Fatal(err)
	}
	put.Body = strings.NewReader("1")
	if _, err := st.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	c.Upstream = entry
	if _, err := open(); !errs.Is(err, errs.Invalid) {
		t.Errorf("an upstream bucket over a bucket with objects: %v", err)
	}
}
