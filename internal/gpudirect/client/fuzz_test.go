// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// FuzzDiscovery: whatever an endpoint answers, it is a socket's absolute path
// or an error with a kind.
func FuzzDiscovery(f *testing.F) {
	for _, s := range []string{`{"version":1,"enabled":true,"socket":"/run/door.sock","store":"s","reason":"","fix":""}`,
		`{"version":1,"enabled":false,"reason":"off","fix":"turn it on"}`,
		`{"version":2}`, `<Error><Code>AccessDenied</Code></Error>`, `{"version":1,"enabled":true,"socket":"door.sock"}`,
		`[]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDiscovery(b, "http://server")
		if err != nil && errs.KindOf(err) == errs.Other {
			t.Errorf("%q: %v", b, err)
		}
		if err == nil && (!strings.HasPrefix(d.Socket, "/") || !d.Enabled) {
			t.Errorf("%q: %+v", b, d)
		}
	})
}
