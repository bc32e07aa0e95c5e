// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"fmt"
	"strings"
)

// principalsOf reads a Principal or NotPrincipal element: "*", an object with AWS, Service or both, or one or more
// names without AWS, as versitygw accepts them.
func principalsOf(raw []byte) (names, services []string, err error) {
	if t := bytes.TrimSpace(raw); len(t) == 0 || t[0] != '{' {
		names, err = accountsOf(raw)
		return names, nil, err
	}
	kinds, err := fieldsOf(raw)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range kinds {
		switch k.Name {
		case "AWS":
			names, err = accountsOf(k.Value)
		case "Service":
			services, err = servicesOf(k.Value)
		default:
			err = overlookedf("unknown field %.64q, expected AWS or Service", k.Name)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if len(kinds) == 0 {
		return nil, nil, overlookedf("missing required field AWS or Service")
	}
	return names, services, nil
}

// accountsOf reads one or more principals that are "*" or accounts.
func accountsOf(raw []byte) ([]string, error) {
	names, err := stringsOf(raw)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, _, err := Principal(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Principal returns the access key that a principal of a policy names. The second result is true if the principal is
// a whole AWS account, such as arn:aws:iam::123456789012:root. A principal that is a whole AWS account matches all
// accounts of this server.
func Principal(name string) (access string, whole bool, err error) {
	arn, ok := strings.CutPrefix(name, "arn:")
	if !ok {
		if name == "" {
			return "", false, fmt.Errorf("an empty principal, expected an access key")
		}
		return name, false, nil
	}
	bad := fmt.Errorf("principal %.128q, expected *, an access key, "+
		"arn:aws:iam::123456789012:user/ACCESS-KEY or arn:aws:iam::123456789012:root", name)
	parts := strings.SplitN(arn, ":", 5)
	if len(parts) != 5 || parts[0] != "aws" && !strings.HasPrefix(parts[0], "aws-") || parts[1] != "iam" ||
		parts[2] != "" ||
		len(parts[3]) != 12 || !digits(parts[3]) {
		return "", false, bad
	}
	if parts[4] == "root" {
		return "", true, nil
	}
	user, ok := strings.CutPrefix(parts[4], "user/")
	user = user[strings.LastIndexByte(user, '/')+1:] // in IAM, the name of a user can follow a path
	if !ok || user == "" || strings.ContainsAny(user, "*?") {
		return "", false, bad
	}
	return user, false, nil
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// accounts returns the access keys that a statement names. For a whole AWS account, an Allow names root, who may do
// everything anyway, and a Deny names everybody. In NotPrincipal, a whole AWS account names root alone, as in AWS: the
// users of that account have to be named one by one.
func (s *statement) accounts(root string) []string {
	out := make([]string, 0, len(s.principals))
	for _, name := range s.principals {
		access, whole, err := Principal(name)
		switch {
		case err != nil: // cannot happen: parse has checked the name
		case whole && s.effect == "Deny" && !s.notPrincipal:
			return []string{"*"}
		case whole:
			out = append(out, root)
		default:
			out = append(out, access)
		}
	}
	return out
}
