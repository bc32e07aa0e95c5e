// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
)

func TestUpstreamBucketsOfTheFile(t *testing.T) {
	c, err := config.Load(config.Inputs{File: write(t, `
cache:
  directory: /nvme/cache
  capacity: 2TiB
upstream:
  models:
    endpoint: https://s3.example.com
    bucket: company-models
    prefix: llm/
    validate: ttl
    ttl: 5m
    immutable: ["release/*"]
    pin: ["*.safetensors"]
    access_key_env: A
    secret_key_env: B
    addressing_style: virtual
  logs.2026:
    endpoint: http://10.0.0.1:9000
    write: none
`)})
	if err != nil {
		t.Fatal(err)
	}
	m, l := c.Upstream["models"], c.Upstream["logs.2026"]
	if m.BucketAt("models") != "company-models" || l.BucketAt("logs.2026") != "logs.2026" || m.TTL != 5*time.Minute ||
		m.StaleIfError != 24*time.Hour || m.FirstByte != 5*time.Second || l.Validate != "always" || l.Write != "none" ||
		m.AddressingStyle != "virtual" || l.AddressingStyle != "path" || c.Cache.Capacity != 2<<40 || c.Cache.HighMark != 90 {
		t.Errorf("%+v %+v %+v", m, l, c.Cache)
	}
	if !m.NeverChanges("release/a/b") || m.NeverChanges("x") || !m.Pinned("a/b.safetensors") || m.Pinned("a.bin") {
		t.Error("patterns")
	}
	found := 0
	for _, v := range c.Values() {
		if v.Key.Name == "upstream.models.prefix" && v.Text == "llm/" && v.Source.Origin == config.FromFile ||
			v.Key.Name == "upstream.logs.2026.validate" && v.Text == "always" && v.Source.Origin == config.FromDefault {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 values", found)
	}
}

func TestWrongUpstreamBuckets(t *testing.T) {
	const ok = "    endpoint: http://h:1\n"
	for _, x := range []struct{ text, want string }{
		{"upstream: 3\n", "expected the names of buckets"},
		{"upstream:\n  models: 3\n", "expected its keys"},
		{"upstream:\n  Mo:\n" + ok, "no name of a bucket"},
		{"upstream:\n  models:\n    endpont: http://h:1\n", "did you mean upstream.models.endpoint"},
		{"upstream:\n  models:\n    region: x\n", "upstream.models.endpoint: is not set"},
		{"upstream:\n  models:\n    endpoint: http://key:secret@h\n", "user name or a password"},
		{"upstream:\n  models:\n    endpoint: ftp://h\n", "no URL"},
		{"upstream:\n  models:\n" + ok + "    validate: sometimes\n", "expected always, ttl or immutable"},
		{"upstream:\n  models:\n" + ok + "    addressing_style: host\n", "expected path or virtual"},
		{"upstream:\n  models:\n" + ok + "    secret_key_env: hunter2!\n", "no name of an environment variable"},
		{"upstream:\n  models:\n" + ok + "    access_key_env: A\n", "only one of access_key_env"},
		{"upstream:\n  models:\n" + ok + "  models:\n" + ok, "twice"},
		{"upstream:\n  models:\n" + ok + ok, "twice"},
		{"cache:\n  low_watermark: 95\n", "low_watermark"},
	} {
		_, err := config.Load(config.Inputs{File: write(t, x.text)})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, expected %q", x.text, err, x.want)
		}
	}
}
