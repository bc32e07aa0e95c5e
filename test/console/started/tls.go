// SPDX-License-Identifier: Apache-2.0

package started

import "crypto/tls"

// trusting returns TLS settings for the server's own certificate, which the test has just made.
func trusting() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // a test on loopback
}
