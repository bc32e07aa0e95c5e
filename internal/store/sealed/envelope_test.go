// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// FuzzEnvelope parses arbitrary text as the attribute that describes how an object is encrypted.
func FuzzEnvelope(f *testing.F) {
	f.Add(`{"kind":"AES256","key":"nebulaio/s3","generation":1,"wrapped":"AAAA"}`)
	f.Add(`{"kind":"SSE-C","salt":"AAAA","wrapped":""}`)
	f.Add(`{"kind":"rot13"}`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parse(text)
		if err != nil {
			return
		}
		if v.Kind != object.EncryptedCustomer && (v.Key == "" || v.Generation < 1) {
			t.Fatalf("%q names no key", text)
		}
		if h := object.EncryptionOf(map[string]string{object.AttrSealed: text}); h == nil || h.Kind != v.Kind {
			t.Fatalf("%q is shown as %+v", text, h)
		}
	})
}

// TestNamesOfKeys compares the names that clients may write with the name of the key.
func TestNamesOfKeys(t *testing.T) {
	for id, want := range map[string]string{"": "aws/s3", "payroll": "payroll", "alias/payroll": "payroll",
		"arn:aws:kms:us-east-1:111122223333:key/payroll":   "payroll",
		"arn:aws:kms:us-east-1:111122223333:alias/payroll": "payroll", "alias/aws/s3": "aws/s3"} {
		if got := keyName(id); got != want {
			t.Errorf("%q: %q, expected %q", id, got, want)
		}
	}
}
