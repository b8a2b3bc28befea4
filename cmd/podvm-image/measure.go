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
	{"SNP launch measurement", "the cloud's firmware; with --snp-firmware"},
	{"TDX MRTD, RTMR", "the cloud's firmware; not computed"},
}

// snpOptions are those of SEV-SNP.
type snpOptions struct {
	firmware, hypervisor string
	vcpus                []int
}

func measureCommand() *cobra.Command {
	var format string
	var snp snpOptions
	cmd := &cobra.Command{
		Use:   "measure IMAGE-DIR|podvm.efi",
		Short: "Print what a TPM holds of a VM that booted this image by UEFI",
		Long: `Print the PCRs (bank sha256) that a verifier should expect of VMs that boot this
image by UEFI, from its unified kernel image: podvm.efi, format uki of
"podvm-image build". A signature does not change them. PCR 4 is another one when
QEMU loads podvm.efi by itself (-kernel) than when the firmware finds it on a disk.

Output rvps has what Trustee's reference value provider takes: a list of good
values for each name. tpm_pcr04 and tpm_pcr11 are the names to ask for in policies.

With --snp-firmware, the file that AWS or Google publishes of its firmware, it prints
the launch measurements of SEV-SNP VMs there, too: of the firmware and the number of
processors. That the firmware loads this image they do not say.

Not computed: TDX's MRTD and RTMRs, and PCRs of firmware and Secure Boot.`,
		Example: `  podvm-image measure -o rvps bin/podvm-confidential
  podvm-image measure -o rvps --snp-firmware ovmf_img.fd --snp-hypervisor ec2 --snp-vcpus 2,4 bin/podvm-confidential`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return program.Usagef("%d arguments, want one: the folder of an image, or its podvm.efi; see %s --help", len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, of := range []string{"snp-hypervisor", "snp-vcpus"} {
				if snp.firmware == "" && cmd.Flags().Changed(of) {
					return program.Usagef("--%s is of --snp-firmware, which is missing", of)
				}
			}
			launches, err := snp.measure()
			if err != nil {
				return err
			}
			expected, err := measureFile(args[0])
			if err != nil {
				return err
			}
			return printExpected(cmd.OutOrStdout(), format, expected, snp.vcpus, launches)
		},
	}
	f := cmd.Flags()
	f.StringVar(&snp.firmware, "snp-firmware", "", "`file` of a cloud's firmware for SEV-SNP (AWS: ovmf_img.fd of a release of github.com/aws/uefi)")
	f.StringVar(&snp.hypervisor, "snp-hypervisor", measure.EC2, "whose it is: "+measure.EC2+" (AWS) or "+measure.GCE+" (Google Cloud)")
	f.IntSliceVar(&snp.vcpus, "snp-vcpus", []int{2}, "virtual processors of the instance types, comma-separated: each has another measurement")
	commandline.Form(cmd, &format, "out", "output", "text", "json", "rvps")
	return cmd
}

// maxVCPUs is more than any VM has.
const maxVCPUs = 1024

// measure returns a measurement for each number of processors; none without a firmware.
func (o *snpOptions) measure() ([]measure.Launch, error) {
	switch {
	case o.firmware == "":
		return nil, nil
	case o.hypervisor != measure.EC2 && o.hypervisor != measure.GCE:
		return nil, program.Usagef("--snp-hypervisor %q: want %s or %s", o.hypervisor, measure.EC2, measure.GCE)
	}
	firmware, err := os.ReadFile(o.firmware)
	if err != nil {
		return nil, fmt.Errorf("--snp-firmware: %w", err)
	}
	launches := make([]measure.Launch, len(o.vcpus))
	for i, n := range o.vcpus {
		if n < 1 || n > maxVCPUs {
			return nil, program.Usagef("--snp-vcpus %d: want 1 to %d", n, maxVCPUs)
		}
		if launches[i], err = measure.SNP(firmware, o.hypervisor, n); err != nil {
			return nil, fmt.Errorf("--snp-firmware %s: %w", o.firmware, err)
		}
	}
	return launches, nil
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

// printExpected takes a measurement for each number of processors, or none.
func printExpected(w io.Writer, format string, e *measure.Expected, vcpus []int, launches []measure.Launch) error {
	switch format {
	case "json":
		return program.WriteJSON(w, struct {
			*measure.Expected
			SNP []measure.Launch `json:"snp_launch_measurement,omitempty"`
		}{e, launches})
	case "rvps":
		values := map[string]any{
			"tpm_pcr04": []measure.Digest{e.Disk4, e.Direct4}, "tpm_pcr09": []measure.Digest{e.PCR9}, "tpm_pcr11": []measure.Digest{e.PCR11}, "tpm_pcr12": []measure.Digest{e.PCR12},
		}
		if launches != nil {
			values["snp_launch_measurement"] = launches
		}
		return program.WriteJSON(w, values)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "PCR 4\t%s\tthe image, started from a disk\n", e.Disk4)
	fmt.Fprintf(tw, "PCR 4\t%s\tthe image, started by QEMU's -kernel\n", e.Direct4)
	fmt.Fprintf(tw, "PCR 9\t%s\tcommand line and initramfs, by the kernel\n", e.PCR9)
	fmt.Fprintf(tw, "PCR 11\t%s\tkernel, os-release, command line, initramfs, by systemd-stub\n", e.PCR11)
	fmt.Fprintf(tw, "PCR 12\t%s\tno other command line, no more initramfs\n", e.PCR12)
	for i, l := range launches {
		fmt.Fprintf(tw, "SNP\t%s\tthe firmware, with %d processors\n", l, vcpus[i])
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nNot predicted from the image:")
	for _, n := range notPredicted {
		fmt.Fprintf(tw, "%s\t%s\n", n.Name, n.Why)
	}
	return tw.Flush()
}
