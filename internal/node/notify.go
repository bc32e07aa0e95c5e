// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// notify tells a service manager that waits for it (systemd, Type=notify) how
// the server stands. Socket is the value of NOTIFY_SOCKET; empty: nobody waits.
func notify(socket, state string) error {
	if socket == "" {
		return nil
	}
	name := socket
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	return errs.Wrap("notify the service manager at", socket, err)
}
