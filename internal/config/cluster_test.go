// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClusterSettings reads settings of a cluster, and refuses those that do not fit together.
func TestClusterSettings(t *testing.T) {
	load := func(text string) (*Config, error) {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(Inputs{File: file})
	}
	c,
		err := load("cluster:\n  address: 10.0.0.1:9002\n  key_file: /etc/key\n  seeds: [a, 'b:7000', '::1', '[::1]:7000']\n")
	if err != nil {
		t.Fatal(err)
	}
	if k := c.Cluster; !k.Enabled() || k.Gossip() != "10.0.0.1:7946" || len(k.Seeds) != 4 || k.Weight != 100 {
		t.Errorf("%+v", k)
	}
	if name, err := c.Cluster.NodeName(); err != nil || name == "" {
		t.Errorf("name %q, %v", name, err)
	}
	for text, expected := range map[string]string{
		"cluster:\n  address: :9002\n":                                                              "key_file is not",
		"cluster:\n  seeds: [a]\n":                                                                  "cluster.address is not",
		"cluster:\n  address: nine\n":                                                               "is no address",
		"cluster:\n  address: :9000\n  key_file: k\naddress: :9000\n":                               "S3 address",
		"cluster:\n  address: :7946\n  key_file: k\n":                                               "gossip address",
		"cluster:\n  weight: -1\n":                                                                  "0 to 1000000",
		"cluster:\n  name: a b\n":                                                                   "no name of a node",
		"cluster:\n  zone: " + strings.Repeat("z", 65) + "\n":                                       "no zone",
		"cluster:\n  address: :9002\n  key_file: k\n  seeds: ['a:0']\n":                             "no seed",
		"cluster:\n  address: :9002\n  key_file: k\n  seeds: ['a:x']\n":                             "no seed",
		"cluster:\n  address: :9002\n  key_file: k\n  seeds: ['http://a']\n":                        "no seed",
		"cluster:\n  address: :9002\n  key_file: k\n  gossip_address: :9002\n":                      "gossip address",
		"cluster:\n  adress: :9002\n":                                                               "cluster.address?",
		"cluster:\n  address: :9002\n  key_file: k\n  key: " + strings.Repeat("A", 43) + "=" + "\n": "unknown key",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%q: %v; expected %q", text, err, expected)
		} else if strings.Contains(err.Error(), "AAAA") {
			t.Errorf("the error has the key: %v", err)
		}
	}
}
