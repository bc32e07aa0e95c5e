// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// userRow is one account, without its secret.
type userRow struct {
	AccessKey string   `json:"access_key"`
	Role      iam.Role `json:"role"`
	Root      bool     `json:"root"`
	You       bool     `json:"you"`
}

// userKeys is the reply with the keys of a new or changed account. The secret is shown this once.
type userKeys struct {
	AccessKey string   `json:"access_key"`
	Role      iam.Role `json:"role"`
	SecretKey string   `json:"secret_key,omitempty"`
}

func (c accountPage) row(a iam.Account) userRow {
	return userRow{AccessKey: a.AccessKey, Role: a.Role, Root: a.AccessKey == c.Accounts.Root().AccessKey,
		You: a.AccessKey == c.user.Account.AccessKey}
}

// users answers GET users.
func (c accountPage) users() (any, error) {
	all := []userRow{c.row(c.Accounts.Root())}
	for _, a := range c.Accounts.List() {
		all = append(all, c.row(a))
	}
	return map[string]any{"users": all, "roles": []iam.Role{iam.RoleAdmin, iam.RoleUser, iam.RoleUserPlus}}, nil
}

// addUser answers POST users.
func (c accountPage) addUser() (any, error) {
	var in struct {
		AccessKey string   `json:"access_key"`
		Role      iam.Role `json:"role"`
		SecretKey string   `json:"secret_key"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	a := iam.Account{AccessKey: in.AccessKey, Role: in.Role, Secret: in.SecretKey}
	if a.Secret == "" {
		a.Secret = iam.NewSecret()
	}
	if err := c.Admin.AddUser(c.r.Context(), a); err != nil {
		return nil, err
	}
	c.opts.Log.Info("added an account", "access_key", a.AccessKey, "role", a.Role, "by", c.user.Account.AccessKey)
	return made{userKeys{a.AccessKey, a.Role, a.Secret}}, nil
}

// showUser answers GET users/{key}.
func (c accountPage) showUser() (any, error) {
	a, err := c.Accounts.Get(c.r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	rights, err := c.Admin.Rights(c.r.Context(), a.AccessKey)
	if err != nil {
		return nil, err
	}
	return struct {
		userRow
		Rights
	}{c.row(a), rights}, nil
}

// changeUser answers PATCH users/{key}. The sessions of an account with a new secret end by themselves.
func (c accountPage) changeUser() (any, error) {
	var in struct {
		Role      *iam.Role `json:"role"`
		SecretKey *string   `json:"secret_key"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	key := c.r.PathValue("key")
	if in.Role != nil && key == c.user.Account.AccessKey {
		return nil, &failed{http.StatusConflict, "OwnAccount", "you cannot change your own role",
			"ask another administrator"}
	}
	change := iam.Change{Role: in.Role, Secret: in.SecretKey}
	if in.SecretKey != nil && *in.SecretKey == "" {
		secret := iam.NewSecret()
		change.Secret = &secret
	}
	if err := c.Admin.UpdateUser(c.r.Context(), key, change); err != nil {
		return nil, err
	}
	c.opts.Log.Info("changed an account", "access_key", key, "by", c.user.Account.AccessKey)
	a, err := c.Accounts.Get(key)
	if err != nil {
		return nil, err
	}
	out := userKeys{AccessKey: a.AccessKey, Role: a.Role}
	if change.Secret != nil {
		out.SecretKey = *change.Secret
		c.sessions.Sweep()
	}
	return out, nil
}

// removeUser answers DELETE users/{key}.
func (c accountPage) removeUser() (any, error) {
	key := c.r.PathValue("key")
	if key == c.user.Account.AccessKey {
		return nil, &failed{http.StatusConflict, "OwnAccount", "you cannot remove your own account",
			"ask another administrator"}
	}
	if err := c.Admin.RemoveUser(c.r.Context(), key); err != nil {
		return nil, err
	}
	c.sessions.Sweep()
	c.opts.Log.Info("removed an account", "access_key", key, "by", c.user.Account.AccessKey)
	return nil, nil
}

// grant answers POST grants.
func (c accountPage) grant() (any, error) {
	var g iam.Grant
	if err := c.decode(&g); err != nil {
		return nil, err
	}
	changed, err := c.Admin.Grant(c.r.Context(), g)
	return map[string]bool{"changed": changed}, err
}

// revoke answers POST revoke.
func (c accountPage) revoke() (any, error) {
	var in struct {
		Bucket string  `json:"bucket"`
		User   string  `json:"user"`
		Prefix *string `json:"prefix"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	changed, err := c.Admin.Revoke(c.r.Context(), in.Bucket, in.User, in.Prefix)
	return map[string]bool{"changed": changed}, err
}
