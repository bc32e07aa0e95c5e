// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/migrate/minioiam"
	"github.com/nebulaio/nebulaio/internal/node"
)

// importJSON is the result of an import.
type importJSON struct {
	DryRun   bool          `json:"dry_run"`
	Policies importCounts  `json:"policies"`
	Users    importCounts  `json:"users"`
	Groups   importCounts  `json:"groups"`
	Keys     importCounts  `json:"service_accounts"`
	Skipped  []skippedJSON `json:"skipped"`
}

// importCounts count what was added, and what the store had already.
type importCounts struct {
	Added   int `json:"added"`
	Present int `json:"present"`
}

// skippedJSON is something that was not imported.
type skippedJSON struct {
	What string `json:"what"` // policy, user, group or service account
	Name string `json:"name"`
	Why  string `json:"why"`
}

func newUserImport(a *app) *cobra.Command {
	var s settings
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Add the users, groups, policies and service accounts of a MinIO server",
		Long: `Add the users, groups, policies and service accounts of a MinIO server.

FILE is the archive that mc admin cluster iam export ALIAS writes. Users keep their
access keys and secret keys. A user with the policy consoleAdmin gets the role admin,
the others get the role user. What the store has already is left as it is, so that
the command can be run again. The result lists what could not be added, and why.`,
		Args: oneName("the archive of mc admin cluster iam export"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			e, err := readExport(args[0])
			if err != nil {
				return err
			}
			m := &identityImport{out: importJSON{DryRun: dryRun, Skipped: []skippedJSON{}}}
			if err := a.administer(ctx, &s, func(n node.Admin) error { return m.run(ctx, n, e) }); err != nil {
				return err
			}
			return a.printResult(asJSON, m.out, m.out.print)
		}),
	}
	s.addStore(cmd, &asJSON)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be added, and change nothing")
	return cmd
}

func readExport(path string) (*minioiam.Export, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errs.Wrap("import", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, errs.Wrap("import", path, err)
	}
	if !st.Mode().IsRegular() {
		return nil, errs.New(errs.Invalid, "import", path, "is no file; expected an archive of mc admin cluster iam export")
	}
	return minioiam.Read(f, st.Size(), path)
}

// identityImport adds what an export has to a store.
type identityImport struct {
	out             importJSON
	policies, users map[string]bool // that the store has, or would have
	groups          map[string]bool
}

func (m *identityImport) skip(what, name, why string) {
	m.out.Skipped = append(m.out.Skipped, skippedJSON{What: what, Name: name, Why: why})
}

// add carries out one addition. It returns whether the store has the thing afterwards.
func (m *identityImport) add(c *importCounts, what, name string, do func() error) (bool, error) {
	if m.out.DryRun {
		c.Added++
		return true, nil
	}
	err := do()
	switch {
	case err == nil:
		c.Added++
	case errs.Is(err, errs.Invalid):
		m.skip(what, name, err.Error())
		return false, nil
	default:
		return false, err
	}
	return true, nil
}

func (m *identityImport) run(ctx context.Context, n node.Admin, e *minioiam.Export) error {
	if err := m.survey(ctx, n); err != nil {
		return err
	}
	if err := m.addPolicies(ctx, n, e.Policies); err != nil {
		return err
	}
	if err := m.addUsers(ctx, n, e.Users); err != nil {
		return err
	}
	if err := m.addGroups(ctx, n, e.Groups); err != nil {
		return err
	}
	return m.addKeys(ctx, n, e.Keys)
}

// survey finds out what the store has.
func (m *identityImport) survey(ctx context.Context, n node.Admin) error {
	m.policies, m.users, m.groups = map[string]bool{}, map[string]bool{}, map[string]bool{}
	policies, err := n.Policies(ctx)
	if err != nil {
		return err
	}
	for _, p := range policies {
		m.policies[p.Name] = true
	}
	users, err := n.Users(ctx)
	if err != nil {
		return err
	}
	for _, u := range users {
		m.users[u.AccessKey] = true
	}
	groups, err := n.Groups(ctx)
	for _, g := range groups {
		m.groups[g.Name] = true
	}
	return err
}

// forMinIO are policies of MinIO for the administration of MinIO itself.
var forMinIO = []string{"consoleAdmin", "diagnostics"}

func (m *identityImport) addPolicies(ctx context.Context, n node.Admin, all []minioiam.Policy) error {
	for _, p := range all {
		if m.policies[p.Name] {
			m.out.Policies.Present++
			continue
		}
		if slices.Contains(forMinIO, p.Name) {
			m.skip("policy", p.Name, "it is for the administration of MinIO; here, the role admin allows that")
			continue
		}
		if _, err := document.Parse(p.Text); err != nil {
			m.skip("policy", p.Name, err.Error())
			continue
		}
		ok, err := m.add(&m.out.Policies, "policy", p.Name, func() error {
			_, err := n.PutPolicy(ctx, p.Name, string(p.Text))
			return err
		})
		if err != nil {
			return err
		}
		m.policies[p.Name] = ok
	}
	return nil
}

func (m *identityImport) addUsers(ctx context.Context, n node.Admin, all []minioiam.User) error {
	for _, u := range all {
		switch {
		case m.users[u.AccessKey]:
			m.out.Users.Present++
		case u.Disabled:
			m.skip("user", u.AccessKey, "it is disabled in MinIO, and accounts here cannot be disabled")
			continue
		default:
			account := iam.Account{AccessKey: u.AccessKey, Secret: u.Secret, Role: iam.RoleUser}
			if slices.Contains(u.Policies, "consoleAdmin") {
				account.Role = iam.RoleAdmin
			}
			ok, err := m.add(&m.out.Users, "user", u.AccessKey, func() error { return n.AddUser(ctx, account) })
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			m.users[u.AccessKey] = true
		}
		if err := m.attach(ctx, n, iam.Holder{User: u.AccessKey}, "user", u.AccessKey, u.Policies); err != nil {
			return err
		}
	}
	return nil
}

// attach attaches those policies that the store has.
func (m *identityImport) attach(ctx context.Context, n node.Admin, to iam.Holder, what, name string,
	policies []string) error {
	var there []string
	for _, p := range policies {
		switch {
		case m.policies[p]:
			there = append(there, p)
		case !slices.Contains(forMinIO, p):
			m.skip(what, name, "the policy "+p+" that is attached to it was not added")
		}
	}
	if len(there) == 0 || m.out.DryRun {
		return nil
	}
	_, err := n.Attach(ctx, to, there)
	return err
}

func (m *identityImport) addGroups(ctx context.Context, n node.Admin, all []minioiam.Group) error {
	for _, g := range all {
		if g.Disabled {
			m.skip("group", g.Name, "it is disabled in MinIO, and groups here cannot be disabled")
			continue
		}
		var members []string
		for _, u := range g.Members {
			if m.users[u] {
				members = append(members, u)
			} else {
				m.skip("group", g.Name, "its member "+u+" is no user of this store")
			}
		}
		c := &m.out.Groups
		if m.groups[g.Name] {
			c = &importCounts{} // the members are added; the group is there
			m.out.Groups.Present++
		}
		ok, err := m.add(c, "group", g.Name, func() error {
			_, err := n.AddMembers(ctx, g.Name, members)
			return err
		})
		if err == nil && ok {
			err = m.attach(ctx, n, iam.Holder{Group: g.Name}, "group", g.Name, g.Policies)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *identityImport) addKeys(ctx context.Context, n node.Admin, all []minioiam.Key) error {
	for _, k := range all {
		there, err := m.hasKey(ctx, n, k)
		if err != nil {
			return err
		}
		switch {
		case there:
			m.out.Keys.Present++
			continue
		case k.Disabled:
			m.skip("service account", k.AccessKey, "it is disabled in MinIO, and accounts here cannot be disabled")
			continue
		case !m.users[k.Parent]:
			m.skip("service account", k.AccessKey, "its user "+k.Parent+" is no user of this store")
			continue
		}
		account := iam.Account{AccessKey: k.AccessKey, Secret: k.Secret, Parent: k.Parent, Description: k.Description,
			SessionPolicy: string(k.Policy), Expires: k.Expires}
		if _, err := m.add(&m.out.Keys, "service account", k.AccessKey, func() error {
			return n.AddKey(ctx, account)
		}); err != nil {
			return err
		}
	}
	return nil
}

// hasKey reports whether the store has a service account.
func (m *identityImport) hasKey(ctx context.Context, n node.Admin, k minioiam.Key) (bool, error) {
	if !m.users[k.Parent] || m.out.DryRun {
		return false, nil // a dry run may have users that the store does not have yet
	}
	keys, err := n.Keys(ctx, k.Parent)
	return slices.ContainsFunc(keys, func(have node.Key) bool { return have.AccessKey == k.AccessKey }), err
}

func (r importJSON) print(w io.Writer) {
	word := "added"
	if r.DryRun {
		word = "to add"
	}
	for _, row := range []struct {
		what string
		importCounts
	}{{"policies", r.Policies}, {"users", r.Users}, {"groups", r.Groups}, {"service accounts", r.Keys}} {
		fmt.Fprintf(w, "%-16s  %d %s, %d there already\n", row.what, row.Added, word, row.Present)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "left out          %s %s: %s\n", s.What, s.Name, s.Why)
	}
}
