// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/guest/measure"
	"github.com/outrigger/outrigger/internal/program"
)

// notPredicted is what the image alone does not decide, by name.
var notPredicted = []struct{ Name, Why string }{
	{"PCR 0, 1, 2, 3, 6", "the firmware, its settings and the machine's devices"},
	{"PCR 5", "the disk's partition table, and boot entries of the firmware"},
	{"PCR 7", "the keys of Secure Boot, and whether it is on"},
	{"PCR 8", "the pod's: its initdata"},
	{"PCR 10", "Linux adds up PCR 0 to 9 there"},
	{"SNP launch measurement", "the cloud's firmware; not computed"},
	{"TDX MRTD, RTMR", "the cloud's firmware; not computed"},
}

func measureCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "measure IMAGE-DIR|podvm.efi",
		Short: "Print what a TPM holds of a VM that booted this image by UEFI",
		Long: `Print the PCRs (bank sha256) that a verifier should expect of VMs that boot this
image by UEFI, from its unified kernel image: podvm.efi, format uki of
"podvm-image build". A signature does not change them. PCR 4 is another one when
QEMU loads podvm.efi by itself (-kernel) than when the firmware finds it on a disk.

Output rvps has what Trustee's reference value provider takes: a list of good
values for each name. tpm_pcr04 and tpm_pcr11 are the names to ask for in policies.

Not computed: SNP launch measurements, TDX's MRTD and RTMRs, which depend on the
firmware of the cloud, and PCRs of firmware and Secure Boot.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return program.Usagef("%d arguments, want one: the folder of an image, or its podvm.efi; see %s --help", len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			expected, err := measureFile(args[0])
			if err != nil {
				return err
			}
			return printExpected(cmd.OutOrStdout(), format, expected)
		},
	}
	commandline.Form(cmd, &format, "out", "output", "text", "json", "rvps")
	return cmd
}

func measureFile(path string) (*measure.Expected, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "podvm.efi")
	}
	image, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; build it with podvm-image build --format uki", err)
	}
	expected, err := measure.UKI(image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return expected, nil
}

func printExpected(w io.Writer, format string, e *measure.Expected) error {
	switch format {
	case "json":
		return program.WriteJSON(w, e)
	case "rvps":
		return program.WriteJSON(w, map[string][]measure.Digest{
			"tpm_pcr04": {e.Disk4, e.Direct4}, "tpm_pcr09": {e.PCR9}, "tpm_pcr11": {e.PCR11}, "tpm_pcr12": {e.PCR12},
		})
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "PCR 4\t%s\tthe image, started from a disk\n", e.Disk4)
	fmt.Fprintf(tw, "PCR 4\t%s\tthe image, started by QEMU's -kernel\n", e.Direct4)
	fmt.Fprintf(tw, "PCR 9\t%s\tcommand line and initramfs, by the kernel\n", e.PCR9)
	fmt.Fprintf(tw, "PCR 11\t%s\tkernel, os-release, command line, initramfs, by systemd-stub\n", e.PCR11)
	fmt.Fprintf(tw, "PCR 12\t%s\tno other command line, no more initramfs\n", e.PCR12)
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nNot predicted from the image:")
	for _, n := range notPredicted {
		fmt.Fprintf(tw, "%s\t%s\n", n.Name, n.Why)
	}
	return tw.Flush()
}
