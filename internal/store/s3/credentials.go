// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"fmt"
	"log/slog"
)

// Credentials are the keys of an account on an S3 server. Every way of printing Credentials hides the secret key and
// the session token.
type Credentials struct {
	AccessKey, SecretKey, SessionToken string
}

// CredentialsProvider returns the credentials for the next request. A provider that fetches temporary credentials
// keeps them itself, and renews them before they expire. Empty credentials mean that requests are not signed.
type CredentialsProvider func(ctx context.Context) (Credentials, error)

// Static returns a provider that always returns the same credentials.
func Static(c Credentials) CredentialsProvider {
	return func(context.Context) (Credentials, error) { return c, nil }
}

// String returns the access key and whether the other keys are set.
func (c Credentials) String() string {
	if c.AccessKey == "" {
		return "no credentials"
	}
	text := "credentials of " + c.AccessKey
	if c.SessionToken != "" {
		text += " with a session token"
	}
	return text
}

// GoString returns the same text as String.
func (c Credentials) GoString() string { return c.String() }

// Format writes the text of String for every verb, so that no verb prints a secret.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// LogValue returns the text of String for structured logs.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText returns the text of String, so that encoders such as JSON write no secret.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
