// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"
	"strings"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// The pair that examples of this field use. Everybody knows it.
const (
	defaultUser     = "minioadmin"
	defaultPassword = "minioadmin"
)

// credentials are the administrator's.
type credentials struct {
	access, secret string
	wellKnown      bool // the default pair
}

// rootCredentials gives the administrator's keys. The well-known pair, whether
// it was set or nothing was, is refused where others than this machine can
// reach the server, unless that is allowed in so many words.
func rootCredentials(c *config.Config) (credentials, error) {
	k := credentials{access: c.RootUser, secret: c.RootPassword}
	if k.access == "" {
		k.access, k.secret = defaultUser, defaultPassword
	}
	k.wellKnown = k.secret == defaultPassword
	if k.wellKnown && !c.AllowDefaultCredentials && !loopback(c.Address) {
		return k, errs.New(errs.Invalid, "start the server on", c.Address,
			fmt.Sprintf("the administrator's keys are the well-known %s and %s, and this address can be reached from other machines", defaultUser, defaultPassword)).
			WithFix("set NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD, or listen on 127.0.0.1")
	}
	return k, nil
}

// loopback says whether an address can be reached from this machine alone. A
// name other than localhost may be anything and counts as reachable.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if i := strings.IndexByte(host, '%'); i >= 0 {
		host = host[:i]
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
