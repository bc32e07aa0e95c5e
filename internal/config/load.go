// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxFile is the largest size of a configuration file in bytes, and maxSecret that of a file with a secret.
const (
	maxFile   = 1 << 20
	maxSecret = 4096
)

// Inputs are the sources of a configuration.
type Inputs struct {
	// File is the path of the YAML file, which must exist. If File is empty, no file is read.
	File string
	// Env returns the value of an environment variable. An empty environment variable counts as not set. If Env is
	// nil, the environment is ignored.
	Env func(string) string
	// Flags maps the name of a setting, such as tls.cert, to the value of the flag that the user gave.
	Flags map[string]string
}

// Load reads and checks a configuration. A wrong setting is an error of kind Invalid; an unreadable file is an error
// with the kind of its cause, such as NotFound.
func Load(in Inputs) (*Config, error) {
	c := &Config{sources: map[string]Source{}}
	fields := table()
	for _, f := range fields {
		if f.Default == "" {
			continue
		}
		if why := f.set(c, f.Default); why != "" {
			return nil, errs.New(errs.Other, "read configuration", f.Name, fmt.Sprintf("the default %q %s", f.Default, why))
		}
	}
	if in.File != "" {
		src, err := readBounded(in.File, maxFile)
		if err != nil {
			return nil, errs.Wrap("read configuration", in.File, err)
		}
		if err := c.file(in.File, src); err != nil {
			return nil, err
		}
	}
	for _, f := range fields {
		if err := c.environment(f, in.Env); err != nil {
			return nil, err
		}
		text, given := in.Flags[f.Name]
		if !given {
			continue
		}
		if f.Flag() == "" {
			return nil, errs.New(errs.Invalid, "read configuration", f.Name,
				"is set by a flag, which this key does not have").WithFix("set " + f.Env())
		}
		if why := f.set(c, text); why != "" {
			return nil, errs.New(errs.Invalid, "read configuration", "--"+f.Flag(), fmt.Sprintf("%q %s", text, why))
		}
		c.sources[f.Name] = Source{FromFlag, "--" + f.Flag()}
	}
	if err := c.whole(); err != nil {
		return nil, c.inFile(in.File, err)
	}
	return c, nil
}

// inFile adds the configuration file to an error about settings that depend on each other, unless the error names the
// file or there is none. The error names the file if it ends with the source of its setting, and that is the file. A
// search for the path in the text would find a short path in any sentence.
func (c *Config) inFile(file string, err error) error {
	var e *errs.Error
	if file == "" || !errors.As(err, &e) ||
		c.Source(e.Name).Origin == FromFile && strings.HasSuffix(e.Msg, c.from(e.Name)) {
		return err
	}
	e.Msg += " (the configuration file is " + file + ")"
	return err
}

// from returns the source of a setting's value for the end of a message.
func (c *Config) from(name string) string { return " (from " + c.Source(name).String() + ")" }

// environment sets a key from its environment variable. A key with EnvOnly can also come from the file that the
// variable with the suffix _FILE names.
func (c *Config) environment(f field, env func(string) string) error {
	if env == nil {
		return nil
	}
	name, text := f.Env(), env(f.Env())
	if f.EnvOnly {
		if file := env(name + "_FILE"); file != "" {
			if text != "" {
				return errs.New(errs.Invalid, "read configuration", f.Name, name+" and "+name+
					"_FILE are both set; expected one of them")
			}
			src, err := readBounded(file, maxSecret)
			if err != nil {
				return errs.Wrap("read configuration", name+"_FILE "+file, err)
			}
			name, text = name+"_FILE", strings.TrimRight(string(src), "\r\n")
			if text == "" {
				return errs.New(errs.Invalid, "read configuration", name+" "+file, "is empty; expected one line")
			}
		}
	} else {
		text = strings.TrimSpace(text)
	}
	if text == "" {
		return nil
	}
	if why := f.set(c, text); why != "" {
		shown := fmt.Sprintf("is %q, which ", text)
		if f.Secret {
			shown = ""
		}
		return errs.New(errs.Invalid, "read configuration", "the environment variable "+name,
			shown+why).WithFix("correct or unset it")
	}
	c.sources[f.Name] = Source{FromEnv, name}
	return nil
}

// whole checks settings that depend on each other.
func (c *Config) whole() error {
	bad := func(name, msg, fix string) error {
		return errs.New(errs.Invalid, "read configuration", name, msg+c.from(name)).WithFix(fix)
	}
	switch {
	case c.TLS.Cert != "" && c.TLS.Key == "":
		return bad("tls.cert", "is set and tls.key is not", "set both, or tls.generate")
	case c.TLS.Key != "" && c.TLS.Cert == "":
		return bad("tls.key", "is set and tls.cert is not", "set both, or tls.generate")
	case c.TLS.Generate && c.TLS.Cert != "":
		return bad("tls.generate", "is true though tls.cert names a certificate", "leave one of them out")
	case (c.RootUser == "") != (c.RootPassword == ""):
		return errs.New(errs.Invalid, "read configuration", "root credentials",
			"only one of NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD is set").WithFix("set both or none")
	}
	if _, port, _ := net.SplitHostPort(c.Address); port != "0" && c.Address == c.ConsoleAddress {
		return bad("console_address", fmt.Sprintf("is %q, which is the S3 address too", c.ConsoleAddress),
			"give it another port")
	}
	if err := c.checkCluster(bad); err != nil {
		return err
	}
	if err := c.checkEncryption(bad); err != nil {
		return err
	}
	if err := c.checkEvents(); err != nil {
		return err
	}
	if err := c.checkTargets(); err != nil {
		return err
	}
	if err := c.checkProviders(); err != nil {
		return err
	}
	return c.checkUpstreams(bad)
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(src)) > limit {
		err = errs.New(errs.Invalid, "", "", fmt.Sprintf("has more than %d bytes", limit))
	}
	return src, err
}
