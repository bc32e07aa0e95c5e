// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/seal"
)

type encryptionKeysJSON struct {
	Keys []keyring.Key `json:"keys"`
}

// encryptionKeyJSON is the result of a change of an encryption key.
type encryptionKeyJSON struct {
	Name string `json:"name,omitempty"`
	File string `json:"file,omitempty"`
}

type rewrapJSON struct {
	Changed int `json:"changed"`
}

func newEncryption(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "encryption",
		Short: "Manage the keys with which the object store encrypts objects on its disk",
		Long: `Manage the keys with which the object store encrypts objects on its disk.

A master key wraps the encryption keys of the store. The master key is in a file,
comes from a command, or stays in a Vault server. See the settings encryption.* of
nebulaio config. If no server runs, the command reads the settings itself.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newEncryptionNewKey(a), newEncryptionKeys(a), newEncryptionCreate(a), newEncryptionRotate(a),
		newEncryptionRewrap(a))
	return cmd
}

func newEncryptionNewKey(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "new-key FILE",
		Short: "Make a file with a new random master key, which only its owner can read",
		Long: `Make a file with a new random master key, which only its owner can read.

If FILE exists, the command writes the new key before the keys in FILE. The older
keys then only decrypt. Restart the server, run nebulaio encryption rewrap, and
remove the older keys afterwards. Keep a copy of the file in a safe place: without
the master key, encrypted objects cannot be read by anybody.`,
		Args: oneName("the path of a key file"),
		RunE: a.run(func(_ context.Context, args []string) error {
			if err := addMasterKey(args[0]); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(encryptionKeyJSON{File: args[0]})
			}
			a.printText(func(w io.Writer) { field(w, "new key", "%s", printable(args[0])) })
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

// addMasterKey writes a new key before the keys of a file, or makes the file. A crash leaves the old file or the new
// one.
func addMasterKey(path string) error {
	const op = "make master key"
	old, err := os.ReadFile(path)
	switch {
	case os.IsNotExist(err):
	case err != nil:
		return errs.Wrap(op, path, err)
	default:
		if _, err := keyring.ReadMaster(path); err != nil {
			return err
		}
	}
	text := append([]byte(hex.EncodeToString(seal.NewKey())+"\n"), old...)
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if os.IsExist(err) {
		return errs.New(errs.Invalid, op, next, "exists already").WithFix("remove it, if no other command makes a key now")
	}
	if err != nil {
		return errs.Wrap(op, path, err)
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // the error before is the reason
	}
	return errs.Wrap(op, path, err)
}

func newEncryptionKeys(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "List the encryption keys of the store, without the keys themselves",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			keys, err := ask(ctx, a, &s, func(n node.Admin) ([]keyring.Key, error) { return n.EncryptionKeys(ctx) })
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(encryptionKeysJSON{keys})
			}
			a.printText(func(w io.Writer) {
				if len(keys) == 0 {
					fmt.Fprintln(w, "no encryption keys")
					return
				}
				t := newTable("key", "generations", "created", "master key")
				for _, k := range keys {
					master := "current"
					if !k.Current {
						master = "older"
					}
					t.add(printable(k.Name), fmt.Sprint(k.Generations), k.Created.Format("2006-01-02"), master)
				}
				t.print(w)
			})
			return nil
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newEncryptionCreate(a *app) *cobra.Command {
	return newEncryptionChange(a, "create NAME", "Make an encryption key, which clients name as the key of SSE-KMS",
		"created", func(ctx context.Context, n node.Admin, name string) error { return n.CreateEncryptionKey(ctx, name) })
}

func newEncryptionRotate(a *app) *cobra.Command {
	return newEncryptionChange(a, "rotate NAME",
		"Make a new generation of an encryption key for new objects; older objects stay "+"readable", "rotated",
		func(ctx context.Context, n node.Admin, name string) error { return n.RotateEncryptionKey(ctx, name) })
}

// newEncryptionChange returns a command that changes one key.
func newEncryptionChange(a *app, use, short, done string,
	change func(context.Context, node.Admin, string) error) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: oneName("the name of an encryption key"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			err := a.administer(ctx, &s, func(n node.Admin) error { return change(ctx, n, args[0]) })
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(encryptionKeyJSON{Name: args[0]})
			}
			a.printText(func(w io.Writer) { field(w, done, "%s", printable(args[0])) })
			return nil
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}

func newEncryptionRewrap(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rewrap",
		Short: "Wrap all encryption keys with the newest master key, so that older master keys can be removed",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			n, err := ask(ctx, a, &s, func(n node.Admin) (int, error) { return n.RewrapEncryptionKeys(ctx) })
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(rewrapJSON{n})
			}
			a.printText(func(w io.Writer) { field(w, "changed", "%d keys", n) })
			return nil
		}),
	}
	s.addStore(cmd, &asJSON)
	return cmd
}
