// SPDX-License-Identifier: Apache-2.0

// Package iam keeps the accounts of a store: users, groups, policies, service accounts and sessions. The S3 front end,
// the console and the door (the local socket of GPUDirect clients) look up accounts in one shared Service.
package iam

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ErrNoSuchAccount and ErrAccountExists are sentinel errors: errors.Is finds them in the errors that this package
// returns.
var (
	ErrNoSuchAccount = errors.New("no such account")
	ErrAccountExists = errors.New("the account exists already")
	ErrNoSuchGroup   = errors.New("no such group")
	ErrNoSuchPolicy  = errors.New("no such policy")
)

// ErrExpired says that keys have expired. By errors.Is, ErrExpired is ErrNoSuchAccount too, so that expired keys are
// refused as unknown ones.
var ErrExpired error = expired{}

type expired struct{}

// Error returns a sentence for users.
func (expired) Error() string { return "the keys have expired" }

// Is reports whether target is ErrNoSuchAccount.
func (expired) Is(target error) bool { return target == ErrNoSuchAccount }

// Role defines the permissions of an account if no bucket policy decides.
type Role string

// An account has one of the roles RoleAdmin, RoleUser and RoleUserPlus.
const (
	// RoleAdmin may manage accounts and has full access to every bucket.
	RoleAdmin Role = "admin"
	// RoleUser may use the buckets that it was granted access to, but may not create buckets.
	RoleUser Role = "user"
	// RoleUserPlus has all permissions of RoleUser, and may also create buckets of its own.
	RoleUserPlus Role = "userplus"
)

// Valid reports whether r is one of the three defined roles.
func (r Role) Valid() bool { return r == RoleAdmin || r == RoleUser || r == RoleUserPlus }

// Account is one account of a store: a user, a service account or a session. UserID, GroupID and ProjectID are for
// programs that map accounts to users of the operating system; the store does not use these numbers.
//
// A service account and a session have a Parent. A service account and a session have the rights of their Parent,
// within the limits of their SessionPolicy. The slices of an Account are shared and must not be changed.
type Account struct {
	AccessKey string `json:"access_key"`
	Secret    string `json:"secret"`
	Role      Role   `json:"role"`
	UserID    int    `json:"user_id,omitempty"`
	GroupID   int    `json:"group_id,omitempty"`
	ProjectID int    `json:"project_id,omitempty"`
	// Policies are the names of the policies that are attached to the account itself. Policies is empty for a service
	// account. For a session without a stored parent, Policies are the policies of the session.
	Policies []string `json:"policies,omitempty"`
	// Groups are the groups of the account. For a user, the groups hold their members, and Service.Get fills in Groups.
	Groups []string `json:"groups,omitempty"`
	// Parent is the user for whom a service account or a session acts: the owner of the buckets that it makes, and its
	// name in bucket policies and ACLs. Parent is empty for a user.
	Parent string `json:"parent,omitempty"`
	// SessionPolicy is a policy as JSON that limits a service account or a session; empty means no limit.
	SessionPolicy string `json:"session_policy,omitempty"`
	// Token is the session token that requests with the keys of a session carry; empty for keys without a token.
	Token string `json:"token,omitempty"`
	// Expires is the time from which on the keys are refused. The zero time means never.
	Expires time.Time `json:"expires,omitzero"`
	// Issued is the time when a session began. Issued is zero for other accounts, and for sessions of earlier releases.
	Issued time.Time `json:"issued,omitzero"`
	// Description is a text of the operator about a service account.
	Description string `json:"description,omitempty"`
	// Claims are values of a session that policies can compare, such as jwt:sub, by their names in lower case.
	Claims map[string][]string `json:"claims,omitempty"`
}

// User returns the name that counts in bucket policies, in ACLs and as the owner of buckets: the parent, or the account
// itself if it has no parent.
func (a Account) User() string {
	if a.Parent != "" {
		return a.Parent
	}
	return a.AccessKey
}

// Derived reports whether the account is a service account or a session.
func (a Account) Derived() bool { return a.Parent != "" }

// Expired reports whether the keys of the account have expired at a time.
func (a Account) Expired(now time.Time) bool { return !a.Expires.IsZero() && !now.Before(a.Expires) }

// String returns the access key and the role without the secret, so that an account can be logged.
func (a Account) String() string { return fmt.Sprintf("%s (%s)", a.AccessKey, a.Role) }

// GoString returns the same text as String, so that %#v does not print the secret.
func (a Account) GoString() string { return a.String() }

const (
	minAccessKey, maxAccessKey = 3, 128
	minSecret, maxSecret       = 8, 256
)

// Validate returns an error that describes the first invalid field of an account, or nil if all fields are valid. An
// access key has 3 to 128 letters, digits and "._@+-". Slashes and commas in an access key are refused, because they
// separate fields in the Authorization header of S3. A secret has 8 to 256 printable ASCII characters without spaces.
func (a Account) Validate() error {
	const op = "account"
	if n := len(a.AccessKey); n < minAccessKey || n > maxAccessKey {
		return errs.New(errs.Invalid, op, a.AccessKey, fmt.Sprintf("the access key has %d characters, expected %d to %d", n,
			minAccessKey, maxAccessKey))
	}
	for i := range len(a.AccessKey) {
		if c := a.AccessKey[i]; !keyByte(c) {
			return errs.New(errs.Invalid, op, a.AccessKey, fmt.Sprintf("the access key has %q at %d, expected letters, "+
				"digits and ._@+-", c, i))
		}
	}
	if n := len(a.Secret); n < minSecret || n > maxSecret {
		return errs.New(errs.Invalid, op, a.AccessKey, fmt.Sprintf("the secret has %d characters, expected %d to %d", n,
			minSecret, maxSecret))
	}
	for i := range len(a.Secret) {
		if c := a.Secret[i]; c < '!' || c > '~' {
			return errs.New(errs.Invalid, op, a.AccessKey, fmt.Sprintf("the secret has a space or a character that is not "+
				"printable ASCII at %d", i))
		}
	}
	if !a.Role.Valid() {
		return errs.New(errs.Invalid, op, a.AccessKey, fmt.Sprintf("the role is %q, expected %s, %s or %s", a.Role, RoleAdmin,
			RoleUser, RoleUserPlus))
	}
	return nil
}

func keyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '.' || c == '_' || c == '@' || c == '+' || c == '-'
}

// NewSecret returns a new secret of 160 random bits.
func NewSecret() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// Change lists the fields of an account that Update sets; a nil field is left unchanged.
type Change struct {
	Secret                     *string
	Role                       *Role
	UserID, GroupID, ProjectID *int
}

func (c Change) apply(a Account) Account {
	if c.Secret != nil {
		a.Secret = *c.Secret
	}
	if c.Role != nil {
		a.Role = *c.Role
	}
	if c.UserID != nil {
		a.UserID = *c.UserID
	}
	if c.GroupID != nil {
		a.GroupID = *c.GroupID
	}
	if c.ProjectID != nil {
		a.ProjectID = *c.ProjectID
	}
	return a
}
