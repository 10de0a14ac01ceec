require 'json'
# SNIPPET
(1..75).each do |n|
  begin
    r = client.post(ENV['TARGET'], { n: n }.to_json, 'Content-Type' => 'application/json')
    puts "#{n} #{r.status}"
  rescue StandardError => e
    puts "#{n} #{e.inspect}"
  end
end
