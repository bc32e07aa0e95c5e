// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// notify sends the state of the server to a service manager (systemd, Type=notify). socket is the value of
// NOTIFY_SOCKET; if socket is empty, notify does nothing.
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
