#include "graphc/serving.hpp"

#include <iostream>

int main(int count, char** arguments) {
  using namespace graphc::serving;
  Options options;
  options.timeout = std::chrono::seconds(10);
  Client client(count > 1 ? arguments[1] : "http://localhost:8501", options);
  const Tensor x = Tensor::of<float>({2, 3}, {1, 0, 0, 0, 1, 0});

  const Tensors outputs = client.predict("flowers", {{"x", x}});
  for (float score : outputs.at("scores").values<float>()) std::cout << score << " ";
  std::cout << "\n";

  try {
    client.predict("flowers", {{"x", Tensor::of<float>({1, 4}, {0, 0, 0, 0})}});
  } catch (const Error& error) {
    std::cout << error.status() << " " << error.code() << ": " << error.what() << "\n";
  }
}
