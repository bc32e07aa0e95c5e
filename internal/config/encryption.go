// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// Encryption holds the settings of encryption at rest.
type Encryption struct {
	KeyFile    string   // file with the master key
	KeyCommand []string // command that prints the master key
	Vault      Vault
}

// Vault names a master key in the transit engine of HashiCorp Vault or OpenBao.
type Vault struct {
	Address, Mount, Key, TokenFile, CAFile string
}

// Enabled reports whether the server has a master key.
func (e Encryption) Enabled() bool {
	return e.KeyFile != "" || len(e.KeyCommand) > 0 || e.Vault.Address != ""
}

// encryptionFields returns the keys of encryption at rest.
func encryptionFields() []field {
	return []field{
		{Key: Key{Name: "encryption.key_file", Type: Text,
			Help: "Absolute path of a file with the master key of encryption at rest, which only the server's user can read. " +
				"Each line is a key of 64 hexadecimal digits; the first line encrypts, and further lines are older " +
				"master keys. The command nebulaio encryption new-key makes such a file. Without a master key, the server " +
				"encrypts only objects for which clients send their own keys."},
			bind: func(c *Config) any { return &c.Encryption.KeyFile }, check: absolutePath},
		{Key: Key{Name: "encryption.key_command", Type: List,
			Help: "Program and arguments of a command that prints the master key, in the form of encryption.key_file. " +
				"The server runs the command once at its start, without a shell."},
			bind: func(c *Config) any { return &c.Encryption.KeyCommand }},
		{Key: Key{Name: "encryption.vault_address", Type: Text,
			Help: "URL of a HashiCorp Vault or OpenBao server whose transit engine has the master key. The master key " +
				"never leaves the Vault server. If encryption.key_file is set too, its keys only decrypt."},
			bind: func(c *Config) any { return &c.Encryption.Vault.Address }, check: httpURL},
		{Key: Key{Name: "encryption.vault_mount", Type: Text, Default: "transit",
			Help: "Path of the transit engine on the Vault server."},
			bind: func(c *Config) any { return &c.Encryption.Vault.Mount }, check: vaultPath},
		{Key: Key{Name: "encryption.vault_key", Type: Text, Default: "nebulaio",
			Help: "Name of the master key in the transit engine. The type of the master key must be aes256-gcm96, " +
				"aes128-gcm96 or chacha20-poly1305."},
			bind: func(c *Config) any { return &c.Encryption.Vault.Key }, check: vaultPath},
		{Key: Key{Name: "encryption.vault_token_file", Type: Text,
			Help: "Absolute path of a file with the token for the Vault server. The server reads the token for each " +
				"request to the Vault server, so that an agent may replace it. The token must allow encrypt, decrypt and read " +
				"of the master key."},
			bind: func(c *Config) any { return &c.Encryption.Vault.TokenFile }, check: absolutePath},
		{Key: Key{Name: "encryption.vault_ca_file", Type: Text,
			Help: "Absolute path of a PEM file with the certificates of authorities that may sign the certificate of the Vault " +
				"server. If encryption.vault_ca_file is not set, the authorities of the system may sign it."},
			bind: func(c *Config) any { return &c.Encryption.Vault.CAFile }, check: absolutePath},
	}
}

// absolutePath checks the path of a file.
func absolutePath(text string) string {
	if text != "" && !filepath.IsAbs(text) {
		return "is no absolute path; expected one such as /etc/nebulaio/master.key"
	}
	return ""
}

// httpURL checks the URL of a server.
func httpURL(text string) string {
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" ||
		strings.Trim(u.Path, "/") != "") {
		return "is no URL of a server; expected one such as https://vault.example:8200"
	}
	return ""
}

// vaultPath checks a name or a path on a Vault server.
func vaultPath(text string) string {
	for i := range len(text) {
		c := text[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./", c) >= 0) {
			return fmt.Sprintf("has the character %q; expected letters, digits and -_./", c)
		}
	}
	if strings.Trim(text, "/.") == "" {
		return "is empty; expected a name such as nebulaio"
	}
	return ""
}

// checkEncryption checks settings of encryption that depend on each other.
func (c *Config) checkEncryption(bad func(name, msg, fix string) error) error {
	e := &c.Encryption
	switch {
	case e.KeyFile != "" && len(e.KeyCommand) > 0:
		return bad("encryption.key_command", "is set and encryption.key_file is set too", "leave one of them out")
	case len(e.KeyCommand) > 0 && e.Vault.Address != "":
		return bad("encryption.key_command", "is set and encryption.vault_address is set too", "leave one of them out")
	case len(e.KeyCommand) > 0 && !filepath.IsAbs(e.KeyCommand[0]):
		return bad("encryption.key_command", fmt.Sprintf("begins with %q, expected the absolute path of a program",
			e.KeyCommand[0]), "write the whole path")
	case e.Vault.Address != "" && e.Vault.TokenFile == "":
		return bad("encryption.vault_address", "is set and encryption.vault_token_file is not", "set both")
	}
	if e.Vault.Address == "" {
		for _, name := range []string{"encryption.vault_token_file", "encryption.vault_ca_file", "encryption.vault_mount",
			"encryption.vault_key"} {
			if c.Source(name).Origin != FromDefault {
				return bad(name, "is set and encryption.vault_address is not", "set encryption.vault_address, or leave it out")
			}
		}
	}
	return nil
}
