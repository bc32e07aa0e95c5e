// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// accounts makes an iam.Service usable by versitygw. versitygw compares errors with ==, so accounts returns
// versitygw's own errors.
type accounts struct {
	svc *iam.Service
	b   *backend // for conditions on the tags of objects; nil if there is no store
}

var (
	_ auth.IAMService        = accounts{}
	_ auth.PrincipalResolver = accounts{}
)

// toAuth returns an account in versitygw's form. A service account and a session have the name of their user, so that
// they own what the user owns; the handle in SessionToken names their own key. versitygw does not ask for the policies
// of accounts with the role admin, so an admin whom policies can restrict gets another role here. EvaluatePolicy then
// allows what the role admin allows.
func toAuth(a iam.Account) auth.Account {
	out := auth.Account{Access: a.User(), Secret: a.Secret, Role: auth.Role(a.Role), UserID: a.UserID,
		GroupID: a.GroupID, ProjectID: a.ProjectID}
	if a.Derived() {
		out.SessionToken = a.AccessKey
	}
	if !unrestricted(a) {
		out.Role = auth.RoleUser
	}
	return out
}

func (a accounts) CreateAccount(acc auth.Account) error {
	return accountError(a.svc.Add(context.Background(), iam.Account{
		AccessKey: acc.Access, Secret: acc.Secret, Role: iam.Role(acc.Role),
		UserID: acc.UserID, GroupID: acc.GroupID, ProjectID: acc.ProjectID,
	}))
}

func (a accounts) GetUserAccount(access string) (auth.Account, error) {
	acc, err := a.svc.Get(access)
	if err != nil {
		return auth.Account{}, accountError(err)
	}
	return toAuth(acc), nil
}

// ResolveAccounts returns those of the given grantees that are neither the access key of an existing account nor a
// group.
func (a accounts) ResolveAccounts(grantees []string) ([]string, error) {
	missing := []string{}
	for _, text := range grantees {
		g, err := acl.Grantee(text)
		if err != nil {
			return nil, err
		}
		if g.Type == types.TypeGroup {
			continue
		}
		if _, err := a.svc.Get(g.Access); err != nil {
			if g.Access != text {
				return nil, invalidGrantee()
			}
			missing = append(missing, text)
		}
	}
	return missing, nil
}

// ResolvePrincipals returns those of the given policy principals that match no existing account.
func (a accounts) ResolvePrincipals(names []string) ([]string, error) {
	missing := []string{}
	for _, name := range names {
		access, whole, err := policy.Principal(name)
		if err == nil && !whole {
			_, err = a.svc.Get(access)
		}
		if err != nil {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func (a accounts) UpdateUserAccount(access string, props auth.MutableProps) error {
	c := iam.Change{Secret: props.Secret, UserID: props.UserID, GroupID: props.GroupID, ProjectID: props.ProjectID}
	if props.Role != "" {
		role := iam.Role(props.Role)
		c.Role = &role
	}
	return accountError(a.svc.Update(context.Background(), access, c))
}

func (a accounts) DeleteUserAccount(access string) error {
	err := a.svc.Remove(context.Background(), access)
	if errors.Is(err, iam.ErrNoSuchAccount) {
		return s3err.GetAPIError(s3err.ErrAdminUserNotFound)
	}
	return accountError(err)
}

func (a accounts) ListUserAccounts() ([]auth.Account, error) {
	all := a.svc.List()
	out := make([]auth.Account, len(all))
	for i := range all {
		out[i] = toAuth(all[i])
	}
	return out, nil
}

func (a accounts) Shutdown() error { return nil }

func accountError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, iam.ErrNoSuchAccount):
		return auth.ErrNoSuchUser
	case errors.Is(err, iam.ErrAccountExists):
		return auth.ErrUserExists
	case errs.Is(err, errs.Invalid):
		e := s3err.GetAPIError(s3err.ErrInvalidRequest)
		e.Description = err.Error()
		return e
	}
	return err
}
