// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/internal/filetree"
	"github.com/outrigger/outrigger/internal/guest/image"
)

//go:embed readme.md
var readme []byte

// kubectlName is the program that kubectl finds as its plugin.
const kubectlName = "kubectl-outrigger"

// shells are those that outrigger completes commands for, with the place that
// Debian's packages give to it.
func shells() map[string]string {
	return map[string]string{
		"bash": "usr/share/bash-completion/completions/outrigger",
		"zsh":  "usr/share/zsh/vendor-completions/_outrigger",
		"fish": "usr/share/fish/vendor_completions.d/outrigger.fish",
	}
}

// makeGuest builds what a guest of this machine boots.
func (b *builder) makeGuest(ctx context.Context) (err error) {
	b.guest, err = image.Build(ctx, image.Options{
		Module: b.Root, Output: b.podvm(), Cache: b.Cache, Formats: []string{image.FormatDirect},
		Version: b.source.version, Date: b.source.date,
	})
	return err
}

func (b *builder) podvm() string { return filepath.Join(b.work, "podvm") }

func (b *builder) makeDemoImage(context.Context) error {
	return demoimage.Build(b.demoImage(), demoimage.Options{})
}

func (b *builder) demoImage() string { return filepath.Join(b.work, demoimage.Folder) }

// installation is what lies beside outrigger, wherever that is: each finds the
// others by its own place.
func (b *builder) installation() (filetree.Tree, error) {
	t := filetree.Tree{}
	for _, program := range hostPrograms() {
		t.Program(program, filepath.Join(b.programs("amd64"), program))
	}
	if err := t.Copy("podvm", b.podvm()); err != nil {
		return nil, err
	}
	return t, t.Copy(demoimage.Folder, b.demoImage())
}

// addTexts adds the README, the licences, and the completions of shells at their places.
func (b *builder) addTexts(ctx context.Context, t filetree.Tree, folder string, place func(shell string) string) error {
	t.File(path.Join(folder, "README.md"), readme)
	if err := b.addLicenses(t, folder); err != nil {
		return err
	}
	for shell := range shells() {
		script, err := b.run(ctx, nil, filepath.Join(b.programs("amd64"), "outrigger"), "completion", shell)
		if err != nil {
			return err
		}
		t.File(place(shell), script)
	}
	return nil
}

func (b *builder) makeArchive(ctx context.Context) error {
	t, err := b.installation()
	if err != nil {
		return err
	}
	if err := b.addTexts(ctx, t, "", func(shell string) string { return "completions/outrigger." + shell }); err != nil {
		return err
	}
	name := "outrigger_" + b.source.fileVersion() + "_linux_amd64"
	return writeTarGz(t.Under(name), filepath.Join(b.fresh, name+".tar.gz"), b.source.date)
}

// makeDeb makes a package that needs what a pod needs: QEMU, and mke2fs for the
// disk of its VM.
func (b *builder) makeDeb(ctx context.Context) error {
	installed, err := b.installation()
	if err != nil {
		return err
	}
	t := installed.Under("usr/lib/outrigger")
	for _, name := range []string{"outrigger", kubectlName} {
		t.Link("usr/bin/"+name, "../lib/outrigger/"+name)
	}
	if err := b.addTexts(ctx, t, "usr/share/doc/outrigger", func(shell string) string { return shells()[shell] }); err != nil {
		return err
	}
	version := b.source.debianVersion()
	p := &debPackage{Tree: t, Date: b.source.date, Fields: []field{
		{"Package", "outrigger"},
		{"Version", version},
		{"Architecture", "amd64"},
		{"Maintainer", "Outrigger authors"},
		{"Section", "admin"},
		{"Priority", "optional"},
		{"Homepage", "https://" + modulePath},
		{"Depends", "qemu-system-x86 (>= 1:6.0), e2fsprogs"},
		{"Recommends", "ca-certificates, kmod"},
		{"Suggests", "libvirt-daemon-system, ovmf"},
		{"Description", "containers in virtual machines of their own\n" +
			" Runs a container in a VM that boots for it, as a container runtime does with\n" +
			" cloud-api-adaptor in a Kubernetes cluster, but without a cluster. The image\n" +
			" that the VM boots and a container image to try it with are part of the package.\n" +
			" kubectl-outrigger shows what Outrigger does in a cluster."},
	}}
	name := fmt.Sprintf("outrigger_%s_amd64.deb", version)
	return writeFile(filepath.Join(b.fresh, name), p.write)
}

// addLicenses adds Outrigger's licence and those of all that is in the
// programs and the images.
func (b *builder) addLicenses(t filetree.Tree, folder string) error {
	own, err := os.ReadFile(filepath.Join(b.Root, "LICENSE"))
	if err != nil {
		return err
	}
	name := "LICENSE"
	if folder != "" {
		name = "copyright" // Debian's name of it
	}
	t.File(path.Join(folder, name), own)
	for name, text := range b.licenses {
		t.File(path.Join(folder, "licenses", name), text)
	}
	return nil
}
