// Drives @aws-sdk/client-s3: reads one JSON request a line and answers each with one JSON line.
import { createReadStream, createWriteStream, openSync, readSync, closeSync, statSync } from "node:fs";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream/promises";
import {
  S3Client, CreateBucketCommand, DeleteBucketCommand, PutObjectCommand, GetObjectCommand, CopyObjectCommand, DeleteObjectCommand,
  DeleteObjectsCommand, CreateMultipartUploadCommand, UploadPartCommand, CompleteMultipartUploadCommand, paginateListObjectsV2,
} from "@aws-sdk/client-s3";

const partSize = 16 << 20;
const parallel = 4;
const s3 = new S3Client({ endpoint: process.env.E2E_ENDPOINT, region: process.env.E2E_REGION, forcePathStyle: true });

async function keys(Bucket) {
  const found = [];
  for await (const page of paginateListObjectsV2({ client: s3, pageSize: 2 }, { Bucket })) {
    for (const o of page.Contents ?? []) found.push(o.Key);
  }
  return found;
}

async function upload(Bucket, Key, path) {
  const size = statSync(path).size;
  if (size <= partSize) { // a stream: signed in chunks, its checksum behind it
    await s3.send(new PutObjectCommand({ Bucket, Key, Body: size ? createReadStream(path) : "", ContentLength: size }));
    return;
  }
  const { UploadId } = await s3.send(new CreateMultipartUploadCommand({ Bucket, Key }));
  const count = Math.ceil(size / partSize), Parts = new Array(count);
  const fd = openSync(path, "r");
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const i = next++, Body = Buffer.alloc(Math.min(partSize, size - i * partSize));
      readSync(fd, Body, 0, Body.length, i * partSize);
      const a = await s3.send(new UploadPartCommand({ Bucket, Key, UploadId, PartNumber: i + 1, Body }));
      Parts[i] = { PartNumber: i + 1, ETag: a.ETag, ChecksumCRC32: a.ChecksumCRC32 };
    }
  };
  await Promise.all(Array.from({ length: parallel }, worker));
  closeSync(fd);
  await s3.send(new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } }));
}

async function run({ op, bucket: Bucket, key: Key, path, to }) {
  switch (op) {
    case "make": await s3.send(new CreateBucketCommand({ Bucket })); return {};
    case "upload": await upload(Bucket, Key, path); return {};
    case "list": return { keys: await keys(Bucket) };
    case "download": {
      const a = await s3.send(new GetObjectCommand({ Bucket, Key }));
      await pipeline(a.Body, createWriteStream(path));
      return {};
    }
    case "copy": await s3.send(new CopyObjectCommand({ Bucket, Key: to, CopySource: encodeURIComponent(`${Bucket}/${Key}`) })); return {};
    case "remove": await s3.send(new DeleteObjectCommand({ Bucket, Key })); return {};
    case "remove_bucket": {
      const Objects = (await keys(Bucket)).map((k) => ({ Key: k }));
      const a = await s3.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects } }));
      if (a.Errors?.length) throw new Error(JSON.stringify(a.Errors));
      await s3.send(new DeleteBucketCommand({ Bucket }));
      return {};
    }
  }
  throw new Error(`no operation ${op}`);
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await run(JSON.parse(line));
  } catch (e) {
    answer = { error: `${e.name}: ${e.message}` };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
