import { Client, ServingError, Tensor } from "./graphc-serving.mjs";

const client = new Client(process.argv[2] ?? "http://localhost:8501", { timeout: 10_000 });
const x = Tensor.from([[1, 0, 0], [0, 1, 0]]); // float32, shape [2, 3]

const { scores } = await client.predict("flowers", { x });
console.log(...scores.data); // a Float32Array; scores.shape is [2, 2]

try {
  await client.predict("flowers", { x: new Tensor(new Float32Array(4), [1, 4]) });
} catch (error) {
  if (!(error instanceof ServingError)) throw error;
  console.log(`${error.status} ${error.code}: ${error.message}`);
}
