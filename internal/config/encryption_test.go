// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/config"
)

// TestWrongSettingsOfEncryptionAreRefused loads each wrong value and expects the key, the value and what is expected.
func TestWrongSettingsOfEncryptionAreRefused(t *testing.T) {
	vault := map[string]string{"encryption.vault_address": "https://v.example:8200", "encryption.vault_token_file": "/t"}
	for _, c := range []struct {
		flags map[string]string
		want  []string
	}{
		{map[string]string{"encryption.key_file": "master.key"},
			[]string{"encryption-key-file", "master.key", "absolute path"}},
		{map[string]string{"encryption.key_command": "hsm get"},
			[]string{"encryption.key_command", "hsm get", "absolute path"}},
		{map[string]string{"encryption.vault_address": "vault:8200"}, []string{"vault:8200", "https://vault.example:8200"}},
		{map[string]string{"encryption.vault_address": "https://v.example/x"}, []string{"https://v.example/x", "expected"}},
		{map[string]string{"encryption.vault_address": "https://v.example"},
			[]string{"encryption.vault_token_file", "set both"}},
		{map[string]string{"encryption.vault_token_file": "/t"}, []string{"encryption.vault_address", "is not"}},
		{map[string]string{"encryption.vault_key": "a b"}, []string{"a b", "letters"}},
		{map[string]string{"encryption.vault_mount": "/"}, []string{"expected a name"}},
		{map[string]string{"encryption.key_file": "/a", "encryption.key_command": "/b"}, []string{"encryption.key_command",
			"leave one of them out"}},
		{map[string]string{"encryption.key_command": "/b", "encryption.vault_address": vault["encryption.vault_address"],
			"encryption.vault_token_file": "/t"}, []string{"encryption.key_command", "leave one of them out"}},
	} {
		_, err := config.Load(config.Inputs{Flags: c.flags})
		if err == nil {
			t.Errorf("%v was accepted", c.flags)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: %v does not name %q", c.flags, err, w)
			}
		}
	}
	if got, err := config.Load(config.Inputs{Flags: vault}); err != nil || !got.Encryption.Enabled() ||
		got.Encryption.Vault.Key != "nebulaio" {
		t.Errorf("%+v, %v", got, err)
	}
}
