// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// RootUserVariable and RootPasswordVariable are the names of the administrator's access key and secret key, in the
// environment and in a root.env file.
const (
	RootUserVariable     = "NEBULAIO_ROOT_USER"
	RootPasswordVariable = "NEBULAIO_ROOT_PASSWORD"
)

// RootKeysIn reads the administrator's keys from a file with the lines NEBULAIO_ROOT_USER=VALUE and
// NEBULAIO_ROOT_PASSWORD=VALUE. Empty lines and lines that begin with # are ignored. A line of another form, an
// invalid key and a missing key are errors. The errors of RootKeysIn never contain the value of a key.
func RootKeysIn(path string) (access, secret string, err error) {
	src, err := readBounded(path, maxSecret)
	if err != nil {
		return "", "", err
	}
	bad := func(format string, args ...any) error {
		return errs.New(errs.Invalid, "", "", fmt.Sprintf(format, args...))
	}
	for i, line := range strings.Split(string(src), "\n") {
		line = strings.TrimRight(line, "\r")
		name, value, _ := strings.Cut(line, "=")
		var dst *string
		check := accessKey
		switch {
		case line == "" || line[0] == '#':
			continue
		case name == RootUserVariable:
			dst = &access
		case name == RootPasswordVariable:
			dst, check = &secret, secretKey
		default:
			return "", "", bad("line %d is neither %s=… nor %s=…", i+1, RootUserVariable, RootPasswordVariable)
		}
		if *dst != "" {
			return "", "", bad("line %d: %s is given twice", i+1, name)
		}
		if why := check(value); why != "" {
			return "", "", bad("line %d: %s %s", i+1, name, why)
		}
		*dst = value
	}
	if access == "" || secret == "" {
		return "", "", bad("has no %s or no %s", RootUserVariable, RootPasswordVariable)
	}
	return access, secret, nil
}
