// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
)

// call is one of the client's methods.
type call[In, Out any] func(context.Context, *In, ...func(*ec2.Options)) (*Out, error)

// calls are those of EC2's that are used. The client itself is held by nothing
// that reflection can reach: with it the linker would keep all of its seven
// hundred calls, which are four fifths of the program.
type calls struct {
	RunInstances                   call[ec2.RunInstancesInput, ec2.RunInstancesOutput]
	DescribeInstances              call[ec2.DescribeInstancesInput, ec2.DescribeInstancesOutput]
	TerminateInstances             call[ec2.TerminateInstancesInput, ec2.TerminateInstancesOutput]
	StopInstances                  call[ec2.StopInstancesInput, ec2.StopInstancesOutput]
	StartInstances                 call[ec2.StartInstancesInput, ec2.StartInstancesOutput]
	GetConsoleOutput               call[ec2.GetConsoleOutputInput, ec2.GetConsoleOutputOutput]
	AllocateAddress                call[ec2.AllocateAddressInput, ec2.AllocateAddressOutput]
	AssociateAddress               call[ec2.AssociateAddressInput, ec2.AssociateAddressOutput]
	DisassociateAddress            call[ec2.DisassociateAddressInput, ec2.DisassociateAddressOutput]
	ReleaseAddress                 call[ec2.ReleaseAddressInput, ec2.ReleaseAddressOutput]
	DescribeAddresses              call[ec2.DescribeAddressesInput, ec2.DescribeAddressesOutput]
	DescribeImages                 call[ec2.DescribeImagesInput, ec2.DescribeImagesOutput]
	DescribeInstanceTypes          call[ec2.DescribeInstanceTypesInput, ec2.DescribeInstanceTypesOutput]
	DescribeSubnets                call[ec2.DescribeSubnetsInput, ec2.DescribeSubnetsOutput]
	DescribeSecurityGroups         call[ec2.DescribeSecurityGroupsInput, ec2.DescribeSecurityGroupsOutput]
	DescribeKeyPairs               call[ec2.DescribeKeyPairsInput, ec2.DescribeKeyPairsOutput]
	DescribeLaunchTemplateVersions call[ec2.DescribeLaunchTemplateVersionsInput, ec2.DescribeLaunchTemplateVersionsOutput]
	DescribeAccountAttributes      call[ec2.DescribeAccountAttributesInput, ec2.DescribeAccountAttributesOutput]
	DescribeVolumes                call[ec2.DescribeVolumesInput, ec2.DescribeVolumesOutput]
	DeleteVolume                   call[ec2.DeleteVolumeInput, ec2.DeleteVolumeOutput]
	DescribeSnapshots              call[ec2.DescribeSnapshotsInput, ec2.DescribeSnapshotsOutput]
	DeleteSnapshot                 call[ec2.DeleteSnapshotInput, ec2.DeleteSnapshotOutput]
	RegisterImage                  call[ec2.RegisterImageInput, ec2.RegisterImageOutput]
	DeregisterImage                call[ec2.DeregisterImageInput, ec2.DeregisterImageOutput]
}

// blockCalls are those of the EBS direct APIs, and quotaCall that of Service
// Quotas, held in the same way.
type (
	blockCalls struct {
		StartSnapshot    blockCall[ebs.StartSnapshotInput, ebs.StartSnapshotOutput]
		PutSnapshotBlock blockCall[ebs.PutSnapshotBlockInput, ebs.PutSnapshotBlockOutput]
		CompleteSnapshot blockCall[ebs.CompleteSnapshotInput, ebs.CompleteSnapshotOutput]
	}
	blockCall[In, Out any] func(context.Context, *In, ...func(*ebs.Options)) (*Out, error)
	quotaCall              func(context.Context, *servicequotas.GetServiceQuotaInput, ...func(*servicequotas.Options)) (*servicequotas.GetServiceQuotaOutput, error)
)

func blockCallsOf(client *ebs.Client) blockCalls {
	return blockCalls{StartSnapshot: client.StartSnapshot, PutSnapshotBlock: client.PutSnapshotBlock, CompleteSnapshot: client.CompleteSnapshot}
}

func callsOf(client *ec2.Client) calls {
	return calls{
		RunInstances:                   client.RunInstances,
		DescribeInstances:              client.DescribeInstances,
		TerminateInstances:             client.TerminateInstances,
		StopInstances:                  client.StopInstances,
		StartInstances:                 client.StartInstances,
		GetConsoleOutput:               client.GetConsoleOutput,
		AllocateAddress:                client.AllocateAddress,
		AssociateAddress:               client.AssociateAddress,
		DisassociateAddress:            client.DisassociateAddress,
		ReleaseAddress:                 client.ReleaseAddress,
		DescribeAddresses:              client.DescribeAddresses,
		DescribeImages:                 client.DescribeImages,
		DescribeInstanceTypes:          client.DescribeInstanceTypes,
		DescribeSubnets:                client.DescribeSubnets,
		DescribeSecurityGroups:         client.DescribeSecurityGroups,
		DescribeKeyPairs:               client.DescribeKeyPairs,
		DescribeLaunchTemplateVersions: client.DescribeLaunchTemplateVersions,
		DescribeAccountAttributes:      client.DescribeAccountAttributes,
		DescribeVolumes:                client.DescribeVolumes,
		DeleteVolume:                   client.DeleteVolume,
		DescribeSnapshots:              client.DescribeSnapshots,
		DeleteSnapshot:                 client.DeleteSnapshot,
		RegisterImage:                  client.RegisterImage,
		DeregisterImage:                client.DeregisterImage,
	}
}
