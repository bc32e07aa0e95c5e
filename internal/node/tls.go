// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// certificateLife is the validity of a generated certificate. Clients trust its fingerprint, so a short validity
// would only break clients.
const certificateLife = 5 * 365 * 24 * time.Hour

// certificate is the TLS certificate of the S3 address and the console address.
type certificate struct {
	certFile, keyFile string
	pair              tls.Certificate
	fingerprint       string // SHA-256 of the leaf, in hex
	made              bool   // whether this start of the server generated the certificate
}

// loadCertificate reads the configured certificate, or reads or generates the certificate in the data directory. It
// returns nil if the server uses plain HTTP.
func loadCertificate(c *config.Config, now time.Time) (*certificate, error) {
	if !c.TLS.Enabled() {
		return nil, nil
	}
	cert := &certificate{certFile: c.TLS.Cert, keyFile: c.TLS.Key}
	if c.TLS.Generate {
		dir := filepath.Join(c.Data, "tls")
		cert.certFile, cert.keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		hosts := certificateHosts(c)
		keep, err := usable(cert.certFile, cert.keyFile, hosts, now)
		if err != nil {
			return nil, err
		}
		if !keep {
			if err := generate(dir, cert.certFile, cert.keyFile, hosts, now); err != nil {
				return nil, errs.Wrap("generate a certificate in", dir, err)
			}
			cert.made = true
		}
		if err := closeKey(dir, cert.keyFile); err != nil {
			return nil, err
		}
	}
	pair, err := tls.LoadX509KeyPair(cert.certFile, cert.keyFile)
	if err != nil {
		kind := errs.KindOf(err)
		if kind == errs.Other {
			kind = errs.Invalid
		}
		return nil, &errs.Error{Kind: kind, Op: "read the certificate", Name: cert.certFile + " and its key " + cert.keyFile,
			Err: err,
			Fix: "tls.cert and tls.key name PEM files that belong together"}
	}
	cert.pair = pair
	sum := sha256.Sum256(pair.Certificate[0])
	cert.fingerprint = strings.ToUpper(strings.Join(pairs(fmt.Sprintf("%x", sum)), ":"))
	return cert, nil
}

// closeKey removes the permissions of other users from the generated key and its directory. A copy of a data
// directory may have lost the original permissions.
func closeKey(dir, keyFile string) error {
	for _, path := range []string{dir, keyFile} {
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(path, info.Mode().Perm()&^0o077)
		}
		if err != nil {
			return &errs.Error{Kind: errs.KindOf(err), Op: "close the generated key to other users", Name: path, Err: err,
				Fix: "as the owner of the file, run chmod go= " + path}
		}
	}
	return nil
}

// selfSigned reports whether no authority has signed the certificate, so that clients need the certificate itself.
func (c *certificate) selfSigned() bool {
	leaf := c.pair.Leaf
	return leaf != nil && bytes.Equal(leaf.RawIssuer, leaf.RawSubject)
}

func pairs(s string) []string {
	var all []string
	for ; len(s) >= 2; s = s[2:] {
		all = append(all, s[:2])
	}
	return all
}

// certificateHosts returns the host names and addresses of a generated certificate.
func certificateHosts(c *config.Config) []string {
	hosts := slices.Clone(c.TLS.Hosts)
	for _, address := range []string{c.Address, c.ConsoleAddress} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
				hosts = append(hosts, host)
			}
		}
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	for _, d := range c.Domains {
		hosts = append(hosts, d, "*."+d)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// usable reports whether a certificate was generated before and is still valid for the given hosts. A certificate
// that cannot be read is an error, and is not replaced.
func usable(certFile, keyFile string, hosts []string, now time.Time) (bool, error) {
	src, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		_, err = os.Stat(keyFile)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // the key is written first: this certificate lost its key
		}
	}
	if err != nil {
		return false, errs.Wrap("read the generated certificate", certFile, err)
	}
	block, _ := pem.Decode(src)
	if block == nil {
		return false, errs.New(errs.Corrupt, "read the generated certificate", certFile,
			"is no PEM file").WithFix("remove the file; a new one is made")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false, &errs.Error{Kind: errs.Corrupt, Op: "read the generated certificate", Name: certFile, Err: err,
			Fix: "remove the file; a new one is made"}
	}
	if now.After(cert.NotAfter) {
		return false, nil
	}
	for _, h := range hosts {
		if cert.VerifyHostname(strings.Replace(h, "*.", "any.", 1)) != nil {
			return false, nil
		}
	}
	return true, nil
}

// generate writes a self-signed certificate and its key, the key first. Each file is written atomically.
func generate(dir, certFile, keyFile string, hosts []string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "NebulaIO", Organization: []string{"NebulaIO, self-signed"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// Clients accept the file as their root certificate only if it is an authority.
		IsCA: true, BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeWhole(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})); err != nil {
		return err
	}
	return writeWhole(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// writeWhole writes a file atomically, with mode 0600.
func writeWhole(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = bytes.NewReader(content).WriteTo(f); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
