// SPDX-License-Identifier: Apache-2.0

package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/nearest"
)

// prefix is the beginning of the names of all our environment variables.
const prefix = "NEBULAIO_"

// Variables lists the environment variables that Load reads.
func Variables() []string {
	all := []string{prefix + "CONFIG"}
	for _, k := range Keys() {
		all = append(all, k.Env())
		if k.EnvOnly {
			all = append(all, k.Env()+"_FILE")
		}
	}
	return all
}

// kubernetes matches the variables that Kubernetes sets in every container for a service named nebulaio or
// nebulaio-something.
var kubernetes = regexp.MustCompile(`^NEBULAIO(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// Unknown returns a warning for each environment variable that begins with NEBULAIO_ and has no effect, for example
// because of a typing error. The first parameter holds NAME=VALUE strings, as os.Environ returns them. The second
// parameter holds further known names of variables, such as those of commands, language bindings and tests. A known
// name that ends in * matches all names with that beginning.
func Unknown(environ, also []string) []string {
	known := Variables()
	var families []string
	for _, name := range also {
		if family, ok := strings.CutSuffix(name, "*"); ok {
			families = append(families, family)
		} else {
			known = append(known, name)
		}
	}
	var all []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, prefix) || slices.Contains(known, name) || kubernetes.MatchString(name) ||
			slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) }) {
			continue
		}
		all = append(all, "the environment variable "+name+" is unknown and has no effect"+nearest.Hint(name, known...))
	}
	slices.Sort(all)
	return all
}
