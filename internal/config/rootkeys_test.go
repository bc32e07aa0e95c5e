// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/config"
)

// FuzzRootKeys reads any text as a file of keys. What is taken has to be taken from the environment as well, and an
// error never shows a value.
func FuzzRootKeys(f *testing.F) {
	f.Add("# a comment\n\nNEBULAIO_ROOT_USER=someone\r\nNEBULAIO_ROOT_PASSWORD=something=else\n")
	f.Add("NEBULAIO_ROOT_PASSWORD=\nNEBULAIO_ROOT_USER")
	f.Add("export NEBULAIO_ROOT_USER=someone")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "root.env")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		access, secret, err := config.RootKeysIn(file)
		if err != nil {
			if access != "" || secret != "" {
				t.Errorf("%q, %q and %v", access, secret, err)
			}
			return
		}
		vars := map[string]string{config.RootUserVariable: access, config.RootPasswordVariable: secret}
		c, err := config.Load(config.Inputs{Env: func(name string) string { return vars[name] }})
		if err != nil || c.RootUser != access || c.RootPassword != secret || strings.ContainsAny(secret, "\r\n") {
			t.Errorf("%q, %q: %v", access, secret, err)
		}
	})
}
