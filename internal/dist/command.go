// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/outrigger/outrigger/internal/program"
)

// introduction is what the help begins with.
const introduction = `outrigger-dist makes the folder that is handed to users who have no compiler: an
archive and a package for Debian with outrigger, all that it starts and the image
that VMs boot; the plugin of kubectl; container images; charts; CRDs; bills of
materials, build provenance and checksums, and a signature if a key is given. Run
it in a checkout, on Debian amd64. Equal sources give equal bytes.

  outrigger-dist -version v0.1.0 -prefix registry.example.com/outrigger -key cosign.key
  outrigger-dist -only deb

The password of the key is in COSIGN_PASSWORD or in the file of -key-password-file.
SOURCE_DATE_EPOCH is the time of all files; without it that is the commit's.

`

// Run is the command outrigger-dist; it returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	o := Options{Log: func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) }}
	f := flags(&o)
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("%q is an argument, and there are only flags", f.Arg(0))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, introduction)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return program.ExitOK
	case err != nil:
		fmt.Fprintf(stderr, "outrigger-dist: %v; all flags: outrigger-dist -h\n", err)
		return program.ExitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := Make(ctx, o); err != nil {
		fmt.Fprintln(stderr, "outrigger-dist:", explain(err))
		return program.ExitError
	}
	return program.ExitOK
}

func flags(o *Options) *flag.FlagSet {
	f := flag.NewFlagSet("outrigger-dist", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	list := func(into *[]string) func(string) error {
		return func(text string) error {
			*into = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
			return nil
		}
	}
	f.StringVar(&o.Version, "version", "", "`version` of the programs; default: what git describe says")
	f.StringVar(&o.Prefix, "prefix", defaultPrefix, "`registry` and folder of the images")
	f.Func("arch", "`architectures` of images and kubectl-outrigger, with commas (default amd64,arm64)", list(&o.Architectures))
	f.Func("only", "`parts` to make, with commas: "+strings.Join(Parts(), ", ")+" (default all)", list(&o.Parts))
	f.StringVar(&o.Output, "output", filepath.Join("bin", "dist"), "`folder` to make; an earlier distribution there is replaced")
	f.StringVar(&o.Root, "root", ".", "`folder` of the sources")
	f.StringVar(&o.Cache, "cache", defaultCache(), "`folder` for downloaded packages of Debian")
	f.StringVar(&o.Key, "key", "", "private key to sign with, a `file`: cosign's, or an EC key in PEM")
	password := f.String("key-password-file", "", "`file` with the key's password (default: env COSIGN_PASSWORD)")
	f.StringVar(&o.Kustomize, "kustomize", "kustomize", "`path` of kustomize")
	f.StringVar(&o.URL, "url", "", "`URL` of the folder where the archives will be, for krew's manifest (default that of a release on GitHub)")
	f.StringVar(&o.Builder, "builder", "https://outrigger.dev/builders/make-dist", "`URI` of who builds, for the provenance")
	o.Password = takePassword(password)
	return f
}

// takePassword reads a key's password from a file or from the environment,
// which no program that is started here inherits.
func takePassword(file *string) Password {
	given, set := os.LookupEnv("COSIGN_PASSWORD")
	return func() ([]byte, error) {
		if *file == "" {
			if !set {
				return nil, nil
			}
			return []byte(given), nil
		}
		data, err := os.ReadFile(*file)
		if err != nil {
			return nil, fmt.Errorf("-key-password-file: %w", err)
		}
		return append([]byte{}, bytes.TrimRight(data, "\r\n")...), nil
	}
}

func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(cmp.Or(os.Getenv("OUTRIGGER_CACHE"), filepath.Join(dir, "outrigger")), "podvm")
}
