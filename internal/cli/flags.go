// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
	"github.com/nebulaio/nebulaio/internal/tuning"
	"github.com/nebulaio/nebulaio/internal/units"
)

// value is a flag that knows its expected form. A wrong value gets the same
// message whether it came from a flag or from the environment.
type value struct {
	kind string // the placeholder in help, such as SIZE
	want string
	// words are all values or the usual ones. They serve suggestions and completion.
	words []string
	set   func(string) error
	text  string
}

// errForm means that a value does not have the expected form.
var errForm = errors.New("not of the expected form")

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }

func (v *value) Set(s string) error {
	if err := v.set(s); err != nil {
		return err
	}
	v.text = s
	return nil
}

// complaint explains why Set refused a value with err.
func (v *value) complaint(err error) string {
	var e *errs.Error
	if errors.As(err, &e) && e.Msg != "" {
		return e.Msg
	}
	return "is not accepted; expected " + v.want
}

// meant suggests a value for one that Set refused.
func (v *value) meant(s string) string { return nearest.Hint(s, v.words...) }

func choice[T ~string](dst *T, kind string, words ...T) *value {
	var texts []string
	for _, w := range words {
		texts = append(texts, string(w))
	}
	return textChoice(func(s string) { *dst = T(s) }, kind, texts...)
}

// textChoice is a flag of one of several words. It sets the first word at once.
func textChoice(set func(string), kind string, words ...string) *value {
	set(words[0])
	return &value{kind: kind, want: list(words), words: words, text: words[0], set: func(s string) error {
		if !slices.Contains(words, s) {
			return errForm
		}
		set(s)
		return nil
	}}
}

func size(dst *int64) *value {
	return &value{
		kind: "SIZE",
		want: "a size such as 4194304, 4MiB or 2GB",
		text: "0",
		set: func(s string) (err error) {
			*dst, err = units.ParseBytes(s)
			return err
		},
	}
}

func count(dst *int, first, least int) *value {
	*dst = first
	return &value{
		kind: "N",
		want: fmt.Sprintf("a whole number of %d or more", least),
		text: strconv.Itoa(first),
		set: func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil || n < least {
				return errForm
			}
			*dst = n
			return nil
		},
	}
}

func number(dst *uint64) *value {
	return &value{kind: "N", want: "a whole number from 0 to 2^64-1", text: "0", set: func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return errForm
		}
		*dst = n
		return nil
	}}
}

// envKey marks flags that an environment variable can set.
const envKey = "nebulaio_env"

// envVar adds v as a flag. If the flag is not given, the variable NEBULAIO_<NAME> sets it.
func envVar(fs *pflag.FlagSet, v pflag.Value, name, usage string) {
	env := "NEBULAIO_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	f := fs.VarPF(v, name, "", usage+" ["+env+"]")
	f.Annotations = map[string][]string{envKey: {env}}
}

// applyEnv sets flags that were not given from the environment. An empty
// variable counts as not set.
func (a *app) applyEnv(cmd *cobra.Command) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		env := f.Annotations[envKey]
		if f.Changed || len(env) == 0 || first != nil {
			return
		}
		s := strings.TrimSpace(a.Env(env[0]))
		if s == "" {
			return
		}
		if v, ok := f.Value.(*value); ok && v.kind == "DEVICE" { // the library could not name the variable
			if why := open.CheckName(s); why != "" {
				first = errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("the environment variable %s is %q, which %s", env[0], s,
					why)).
					WithFix("correct or unset it, or give --" + f.Name)
				return
			}
		}
		if err := f.Value.Set(s); err != nil {
			msg := err.Error()
			if v, ok := f.Value.(*value); ok {
				msg = v.complaint(err) + v.meant(s)
			}
			first = errs.New(errs.Invalid, cmd.Name(), "", fmt.Sprintf("the environment variable %s is %q, which %s", env[0], s,
				msg)).
				WithFix("correct or unset it, or give --" + f.Name)
		}
	})
	return first
}

// systemFlags adds the flags of a system's options, by their keys in package tuning.
func systemFlags(fs *pflag.FlagSet, o *nebulaio.Options, keys ...string) {
	for _, key := range keys {
		option := tuning.Find(key)
		field := reflect.ValueOf(o).Elem().FieldByName(option.Field)
		var v *value
		switch option.Kind {
		case tuning.Size:
			v = size(field.Addr().Interface().(*int64))
		case tuning.Count:
			v = count(field.Addr().Interface().(*int), 0, 0)
		case tuning.Choice:
			v = textChoice(field.SetString, option.Form, option.Words...)
		default:
			panic("no flag has values of the kind " + string(option.Kind))
		}
		envVar(fs, v, option.Flag, option.HelpText())
	}
}

// engineFlags are the options of a system that every command with an engine has.
func engineFlags(fs *pflag.FlagSet, o *nebulaio.Options) {
	systemFlags(fs, o, "devices", "buffer_pool_size", "max_transfer_size", "queue_depth", "workers", "io")
}
